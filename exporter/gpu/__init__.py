"""The GPU exporter: serves what NVIDIA's driver says about each GPU to Prometheus.

Two processes. The worker (``worker``) owns NVML, reads each GPU (``backend``) in a thread of its own and
sends what it read through a pipe. The front (``__main__``) starts, watches and replaces workers
(``supervisor``), stores what must outlive one (``state``) and answers. So a driver call that hangs or
crashes never holds up a page.
"""
