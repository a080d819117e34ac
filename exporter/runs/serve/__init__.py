"""What the run exporter serves beside the light page: which runs, their metrics, health and marks."""
