#!/usr/bin/env python3
"""Render config.yaml: `python generate.py [--config FILE] [--out DIR] [--check | --discover docker]`."""

import os
import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
    signal.signal(signal.SIGINT, lambda *_: os._exit(130))  # Ctrl-C: no traceback while modules load

import sys
from importlib.util import find_spec
from pathlib import Path

VENV = Path(__file__).resolve().parent / ".venv"
NEEDED = ("jinja2", "orjson", "pydantic", "yaml")


def run() -> int:
    """Hand over to the package, with the Python of `.venv` where this one lacks something."""
    if sys.version_info >= (3, 10) and all(find_spec(name) for name in NEEDED):
        # They need what was just looked for.
        from exporter import process  # noqa: PLC0415
        from stepwatch.generate import main  # noqa: PLC0415

        process.run(main)
    python = VENV / "bin" / "python"
    if python.exists() and Path(sys.prefix).resolve() != VENV.resolve():
        os.execv(python, [str(python), *sys.argv])  # noqa: S606  the same program, the right Python
    sys.stderr.write(
        f"generate.py: {sys.executable} is not Python 3.10 or later with {', '.join(NEEDED)}. "
        "Fix: run `make generate`, which sets up .venv.\n"
    )
    return 2


if __name__ == "__main__":
    sys.exit(run())
