"""The exporters: programs that turn a training run, or a GPU, into Prometheus metrics."""

__version__ = "0.1.0"
