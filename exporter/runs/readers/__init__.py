"""Readers: each follows one way in which logs lie in files and returns what is new."""
