"""What the run exporter serves beside the light page."""
