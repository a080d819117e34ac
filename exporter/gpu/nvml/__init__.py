"""Real GPUs, through NVML. Only the modules in here load ``pynvml``."""
