"""Judges rules on the real logs: what they find, when, and what they cry wolf about."""
