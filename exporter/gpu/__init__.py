"""The GPU exporter: serves what NVIDIA's driver says about each GPU to Prometheus."""
