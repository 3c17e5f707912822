"""Widgets: pure functions that draw lines, and the one cheap widget that puts lines on a screen."""
