"""The programs that Stepwatch itself runs: run and GPU exporter, and the door of a hub."""

__version__ = "0.1.0"
