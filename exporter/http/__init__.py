"""The HTTP server of the exporters."""
