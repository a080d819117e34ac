"""A run: its records, progress, state, marks and values."""
