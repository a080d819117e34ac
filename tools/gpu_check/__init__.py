"""``make gpu-check``: what the GPU exporter says, held against ``nvidia-smi`` and NVML."""
