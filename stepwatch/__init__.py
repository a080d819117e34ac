"""The operator's side: configuration, alerts, rendering, deployment, and commands about what runs."""

import runpy


def run() -> None:
    """Run the command ``stepwatch`` of an installation: ``python -m stepwatch`` by another name."""
    runpy.run_module("stepwatch", run_name="__main__", alter_sys=True)
