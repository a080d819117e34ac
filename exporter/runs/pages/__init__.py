"""Polled runs: ``web`` asks, ``page`` and ``mlflow`` read the answer, ``source`` has the runs."""
