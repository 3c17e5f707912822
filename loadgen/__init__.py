"""Drives the server under test and measures it."""
