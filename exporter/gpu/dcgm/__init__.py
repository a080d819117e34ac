"""The GPUs as NVIDIA's DCGM exporter would report them, for dashboards that were made for it."""
