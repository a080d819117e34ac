"""What the alert rules do, by promtool's unit tests; an alert's cases stand in `catalogue.py`."""
