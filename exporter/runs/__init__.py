"""The run exporter: reads what trainers log and serves statistics over steps to Prometheus.

Data flows one way: ``logs`` (which files) -> ``readers`` (their bytes) -> ``formats`` (records) ->
``signals`` (numbers in base units) -> ``model`` and ``stats`` (over the last N steps) -> ``serve``.
``remote`` feeds in polled pages; ``app`` puts it together.
"""
