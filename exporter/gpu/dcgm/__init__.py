"""The GPUs as NVIDIA's DCGM exporter would tell of them, for dashboards that were made for it."""
