"""The bridge between Alertmanager and chat robots, and actions on runs."""
