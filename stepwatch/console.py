"""The command ``stepwatch`` of an installation: ``python -m stepwatch`` by another name."""

import runpy


def run() -> None:
    """Run the command line of this process, and end with its exit code."""
    runpy.run_module("stepwatch", run_name="__main__", alter_sys=True)
