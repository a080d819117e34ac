"""The GPU exporter: serves what NVIDIA's driver says about each GPU to Prometheus.

Two processes. The worker owns NVML, reads each GPU in a thread of its own (``backend`` ->
``reader`` -> ``snapshot``) and sends what it read through a pipe. The front (``__main__``) starts,
watches and replaces workers (``keeper``, ``child``), keeps what must outlive one (``box``) and answers
(``server``). So a driver call that hangs or crashes never holds up a page.
"""
