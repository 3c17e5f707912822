"""The screens: each puts panels together and turns keys into looking about or into commands."""
