"""Tools for those who develop Stepwatch."""
