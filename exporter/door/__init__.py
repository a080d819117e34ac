"""The reverse proxy before Prometheus and Alertmanager, which themselves let any web page in."""
