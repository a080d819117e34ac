"""YAML with the line of each value."""
