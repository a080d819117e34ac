"""``python -m exporter.runs --path FOLDER``: serve statistics of training runs to Prometheus."""

from __future__ import annotations

from exporter import interrupt

if __name__ == "__main__":
    interrupt.end_at_once()  # first of all: the modules below take their time

import os
import sys
from argparse import Namespace
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from exporter.lossy import lose_what_cannot_be_written
from exporter.options import cannot_listen, stopped_by_signal
from exporter.runs import flags
from exporter.runs.history import panelfile
from exporter.runs.mounts import HungError, Mount
from exporter.runs.service import Service
from exporter.settings import SettingsFile


def main(argv: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT. Returns the exit code."""
    settings = SettingsFile.named()
    options = _options(settings, argv)
    stop = stopped_by_signal()
    try:
        service = Service(options, _panels(options, settings), stop.is_set)
    except OSError as error:
        print(cannot_listen(options, error), file=sys.stderr)
        return 2
    service.start()
    print(
        f"http://{options.listen}:{options.port}/ shows the runs of {', '.join(options.path)}",
        flush=True,
    )
    thread = Mount(str(settings.path))
    while not stop.is_set():
        stop.wait(service.look())
        if _changed(settings, thread) and _usable(settings, argv):
            service.stop()  # first: a client that got the answer that it is registered would not come again
            _start_again()
    service.stop()
    return 0


def _options(settings: SettingsFile, argv: Sequence[str] | None) -> Namespace:
    return flags.parser({**settings.values(), **os.environ}).parse_args(argv)


def _panels(options: Namespace, settings: SettingsFile) -> Path:
    """The file of panels: the one that is named, or else the one beside the settings."""
    beside = Path(settings.path).with_name(panelfile.NAME) if settings.path else panelfile.USUAL
    named: Path | None = options.panels
    return named or beside


def _changed(settings: SettingsFile, thread: Mount) -> bool:
    """Whether there are new settings; not while their file system hangs."""
    with suppress(HungError):
        return thread.call(settings.changed)
    return False


def _usable(settings: SettingsFile, argv: Sequence[str] | None) -> bool:
    """Whether new settings can be used; if not, the reason is logged and the old ones stay."""
    try:
        _options(settings, argv)
    except SystemExit:
        print(f"{settings.path} cannot be used; the old settings stay.", file=sys.stderr)
        return False
    return True


def _start_again() -> None:
    # A state file and the logs hold all that matters, so that a fresh start is the simplest change.
    print("New settings: starting again with them.", flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "exporter.runs", *sys.argv[1:]])  # noqa: S606


if __name__ == "__main__":
    lose_what_cannot_be_written()
    interrupt.run(main)
