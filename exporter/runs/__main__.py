"""``python -m exporter.runs --path FOLDER``: serve statistics of training runs to Prometheus."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from threading import Event

from exporter.runs.lifecycle import Silence
from exporter.runs.server import Server
from exporter.runs.watch import Settings, Watch


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT. Returns the exit code."""
    options = _parser().parse_args(arguments)
    watch = Watch(_settings(options))
    try:
        server = Server((options.listen, options.port), watch.metrics)
    except OSError as error:
        print(
            f"--port {options.port}: cannot listen on {options.listen}: {error.strerror}. "
            "Expected a free port. Cure: stop the other program, or choose another port.",
            file=sys.stderr,
        )
        return 2
    server.start()
    _look_until_stopped(watch)
    watch.save()
    server.shutdown()
    return 0


def _look_until_stopped(watch: Watch) -> None:
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    while not stop.is_set():
        watch.look()
        stop.wait(watch.settings.poll)


def _settings(options: argparse.Namespace) -> Settings:
    return Settings(
        paths=tuple(options.path),
        state_folder=options.state_dir,
        hold=options.hold,
        forget_after=options.forget_after,
        silence=Silence(options.silence, options.silence_intervals),
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m exporter.runs",
        description="Serve statistics over training steps to Prometheus. "
        "Each flag is also a variable: STEPWATCH_PATH, STEPWATCH_PORT, ...",
    )
    _flag(parser, "path", str, "./runs", "run folders, log files or globs to read", nargs="+")
    _flag(parser, "port", int, 9410, "port to serve on")
    _flag(parser, "listen", str, "127.0.0.1", "address to serve on")
    _flag(parser, "state-dir", Path, None, "folder that keeps what a restart could not rebuild")
    _flag(parser, "hold", _seconds, 15.0, "seconds for which extremes are held: three scrape intervals")
    _flag(parser, "forget-after", _seconds, 43200.0, "seconds after which a silent or ended run leaves")
    _flag(parser, "silence", _seconds, 600.0, "least seconds without a step that count as silence")
    _flag(parser, "silence-intervals", _seconds, 5.0, "typical step intervals that count as silence")
    return parser


def _flag(
    parser: argparse.ArgumentParser, name: str, kind: type | object, default: object, text: str, **more: str
) -> None:
    """A flag whose default comes from its variable; several paths are separated by ``:`` there."""
    variable = f"STEPWATCH_{name.replace('-', '_').upper()}"
    value: object = os.environ.get(variable) or default
    if more and isinstance(value, str):
        value = value.split(os.pathsep)
    parser.add_argument(f"--{name}", type=kind, default=value, help=f"{text} (default: %(default)s)", **more)  # type: ignore[arg-type]


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number of seconds")
    return value


if __name__ == "__main__":
    sys.exit(main())
