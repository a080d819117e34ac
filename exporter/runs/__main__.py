"""``python -m exporter.runs --path FOLDER``: serve statistics of training runs to Prometheus."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Event

from exporter.runs.lifecycle import Silence
from exporter.runs.server import Server
from exporter.runs.watch import Settings, Watch


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT. Returns the exit code."""
    options = _parser().parse_args(arguments)
    stop = _stopped_by_signal()
    watch = Watch(_settings(options))
    try:
        server = Server((options.listen, options.port), watch.metrics)
    except OSError as error:
        print(_cannot_listen(options, error), file=sys.stderr)
        return 2
    server.start()
    print(
        f"http://{options.listen}:{options.port}/metrics shows the runs of {', '.join(options.path)}",
        flush=True,
    )
    while not stop.is_set():
        more = watch.look()
        stop.wait(0 if more else watch.settings.poll)
    watch.save()
    server.shutdown()
    return 0


def _stopped_by_signal() -> Event:
    stop = Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    return stop


def _cannot_listen(options: argparse.Namespace, error: OSError) -> str:
    return (
        f"--listen {options.listen} --port {options.port}: cannot listen there: {error.strerror}. "
        "Expected an address of this machine and a free port. "
        "Cure: stop the program that has the port, or choose another one."
    )


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
    _flag(parser, "port", _port, 9410, "port to serve on")
    _flag(parser, "listen", str, "127.0.0.1", "address to serve on")
    _flag(parser, "state-dir", Path, None, "folder that keeps what a restart could not rebuild")
    _flag(parser, "hold", _positive, 15.0, "seconds for which extremes are held: three scrape intervals")
    _flag(parser, "forget-after", _positive, 43200.0, "seconds after which a silent or ended run leaves")
    _flag(parser, "silence", _positive, 600.0, "least seconds without a step that count as silence")
    _flag(parser, "silence-intervals", _positive, 5.0, "typical step intervals that count as silence")
    return parser


def _flag(
    parser: argparse.ArgumentParser,
    name: str,
    kind: Callable[[str], object],
    default: object,
    text: str,
    *,
    nargs: str | None = None,
) -> None:
    """A flag whose default comes from its variable; several paths are separated by ``:`` there."""
    variable = f"STEPWATCH_{name.replace('-', '_').upper()}"
    value = os.environ.get(variable) or default
    if isinstance(value, str):
        try:
            value = [kind(part) for part in value.split(os.pathsep) if part] if nargs else kind(value)
        except argparse.ArgumentTypeError as problem:
            parser.error(f"variable {variable}: {problem}")
    parser.add_argument(
        f"--{name}", type=kind, default=value, nargs=nargs, help=f"{text} (default: %(default)s)"
    )


def _port(text: str) -> int:
    if not (text.isdecimal() and len(text) < 6 and 0 < int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text!r} is no port. Expected a number from 1 to 65535.")
    return int(text)


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number. Expected one such as 15 or 0.5.")
    return value


if __name__ == "__main__":
    sys.exit(main())
