"""Logs: which files are one, how far each was read, and who writes them."""
