"""The run exporter: reads what trainers log and serves statistics over steps to Prometheus.

Data flows one way: ``follow`` (bytes of a file) -> ``sources`` (records) -> ``signals`` (numbers in
base units) -> ``statistics`` (over the last N steps) -> ``exposition`` -> ``server``.
"""
