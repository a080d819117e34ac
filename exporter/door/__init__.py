"""The reverse proxy before Prometheus and Alertmanager, which themselves accept requests of any web page."""
