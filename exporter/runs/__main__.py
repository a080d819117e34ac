"""``python -m exporter.runs --path FOLDER``: serve statistics of training runs to Prometheus."""

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()  # first of all: the modules below take their time

import logging
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from exporter import logging_setup
from exporter.options import CommandLine, start_again, stopped_by_signal
from exporter.runs import cli
from exporter.runs.app import App
from exporter.runs.files.mounts import HungError, Mount
from exporter.runs.overview import panels

logger = logging.getLogger("exporter.runs")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT. Returns the exit code."""
    settings = cli.command_line(argv)
    options = settings.options()
    logging_setup.configure(options.log_level, options.log_format)
    stop = stopped_by_signal()
    file = options.config_file
    beside = Path(file).with_name(panels.NAME) if file else panels.DEFAULT
    try:
        service = App(options, options.panels or beside, stop.is_set)
    except OSError as error:
        options.cannot_listen(error)
        return 2
    service.start()
    logger.info("http://%s:%s/ shows the runs of %s", options.listen, options.port, ", ".join(options.path))
    thread = Mount(str(file))
    while not stop.is_set():
        stop.wait(service.look())
        if _changed(settings, thread) and settings.renewed():
            break
    service.stop()  # before a new start: a client that was registered would not register again
    # A state file and the logs hold all that matters, so that a fresh start is the simplest change.
    start_again("exporter.runs", stop)
    return 0


def _changed(settings: CommandLine[cli.Settings], thread: Mount) -> bool:
    """Whether there are new settings; not while their file system hangs."""
    with suppress(HungError):
        return thread.call(settings.changed)
    return False


if __name__ == "__main__":
    process.run(main)
