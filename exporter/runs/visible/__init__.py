"""Runs as they are shown: which, under which name, once each."""
