"""Simulated GPUs that train a model together, for dashboards and alerts where there is no real one."""

from exporter.gpu.demo.backend import Demo

__all__ = ["Demo"]
