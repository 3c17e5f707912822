"""Puts a preset in effect on the server, and proves it."""
