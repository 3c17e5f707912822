"""Is the text still right? The coding eval and the lossless check."""
