"""The table of alerts, a module for each topic: limits, conditions, guards and texts of each alert."""
