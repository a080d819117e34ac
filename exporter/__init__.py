"""The programs that Stepwatch itself runs: run and GPU exporter, and the bridge."""

__version__ = "0.1.0"
