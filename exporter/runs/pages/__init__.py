"""Polled runs: ``web`` asks, ``page`` and ``mlflow`` read the answers, ``source`` polls and has the runs."""
