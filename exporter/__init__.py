"""The programs that Stepwatch itself runs: run and GPU exporter, watchdog, and the door, a reverse proxy."""

__version__ = "0.1.0"
