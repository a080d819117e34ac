"""The table of alerts: each with its limits, ways to fire, guards and texts; a module for each topic."""
