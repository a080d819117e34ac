"""Flags, environment and settings file of the run exporter."""
