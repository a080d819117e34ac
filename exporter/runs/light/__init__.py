"""The light page: runs, curves and alerts for those without Grafana. No script, nothing from elsewhere."""
