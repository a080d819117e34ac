"""``python -m stepwatch up|down|status|...``: what users do with the stack, whatever it runs in."""
# ruff: noqa: PLC0415 - each command imports what it needs; all of it takes a second

from __future__ import annotations

from exporter import process

if __name__ == "__main__":
    process.end_on_interrupt()

import argparse
import os
import sys
from importlib.util import find_spec
from pathlib import Path

if __name__ == "__main__" and not find_spec("pydantic"):
    # A Python without our packages, such as the system's: that of the checkout's environment takes over.
    from stepwatch.system.environment import PYTHON

    if not PYTHON.exists() or Path(sys.prefix).samefile(PYTHON.parents[1]):
        sys.exit(f"{sys.executable} lacks Stepwatch's packages. Fix: `make status` installs them in .venv.")
    os.execv(PYTHON, [str(PYTHON), "-m", "stepwatch", *sys.argv[1:]])  # noqa: S606  the right Python

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING

from exporter import __version__
from exporter.gpu.backend import RELEASE_SECONDS
from exporter.installation import INSTALLED, adapt
from stepwatch.schema.errors import Refused

if TYPE_CHECKING:
    from stepwatch.deploy.native.state import State

Function = Callable[[argparse.Namespace], int]
Command = Callable[..., argparse.ArgumentParser]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Returns:
        0 done and well; 1 something does not work; 2 refused, nothing was touched; 3 (`status`) the
        stack is not running; 130 interrupted.
    """
    options = parser().parse_args(arguments)
    try:
        return int(options.function(options))
    except Refused as refusal:
        sys.stderr.write(adapt(f"{refusal}\n"))
        return 2
    except KeyboardInterrupt:
        sys.stderr.write(adapt("Interrupted. `make status` shows what runs.\n"))
        return process.EXIT_CODE


def parser() -> argparse.ArgumentParser:
    """The commands with their options; ``function`` of what is parsed runs it."""
    prog = "stepwatch" if INSTALLED else "python -m stepwatch"
    parser = argparse.ArgumentParser(
        prog=prog, usage="%(prog)s COMMAND ...", formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="version", version=f"stepwatch {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, prog=prog, help=argparse.SUPPRESS)
    listed: list[str] = []

    def command(name: str, text: str, function: Function, *, config: bool = True) -> argparse.ArgumentParser:
        added = commands.add_parser(name, description=f"{text[:1].upper()}{text[1:]}.")
        listed.append(f"  {name:<13} {text}")
        added.set_defaults(function=function)
        if config:
            added.add_argument("--config", type=Path, help="the configuration file; default: config.yaml")
        return added

    for want, add in (
        ("start and stop", _start_and_stop),
        ("look", _look),
        ("when something happened", _react),
        ("tune", _tune),
    ):
        listed.append(f"\n{want}:")
        add(command)
    parser.epilog = "\n".join((*listed, f"\n{prog} COMMAND --help shows the options of a command."))
    return parser


def _start_and_stop(command: Command) -> None:
    """What starts and stops the stack and trainers."""
    for starting in (
        command("up", "start the stack, or apply config.yaml to the running one", _up),
        command("demo", "`up` with simulated trainers and GPUs", _up),
    ):
        starting.add_argument("--runs", type=Path, help="overrides runs.path of the file")
        starting.add_argument("--demo", action="store_true", help="with simulated trainers and GPUs")
        starting.add_argument("--native", action="store_true", help="as processes even if Docker answers")
        starting.add_argument("--service", action="store_true", help="also start it at boot, with systemd")
    starting.set_defaults(demo=True)
    ending = command("down", "stop the stack", _stack)
    ending.add_argument("--service", action="store_true", help="also remove its systemd unit")
    running = command("run", "run a trainer, and record its output and how it ended", _run)
    running.add_argument(
        "--runs",
        type=Path,
        metavar="DIR",
        help="the folder of logs; default: that of the last `make up RUNS=`, else runs.path",
    )
    running.add_argument(
        "--name", help="name of its log, without .log; default: the program's, with the time"
    )
    running.add_argument(
        "--retry", metavar="POLICY", help="restart a failed trainer by this entry of retry in config.yaml"
    )
    running.add_argument("--dry-run", action="store_true", help="with --retry: only print what it would do")
    running.add_argument("--ray", metavar="ADDRESS", help="submit the trainer as a job to this Ray cluster")
    running.add_argument(
        "--working-dir", metavar="DIR", help="with --ray: the folder of this machine to upload for the job"
    )
    running.add_argument(
        "--keep-best", type=_count, metavar="N", help="keep the N best checkpoints; default: checkpoints.keep"
    )
    running.add_argument(
        "--checkpoints",
        type=Path,
        metavar="DIR",
        help="folder of the checkpoints, if the command line does not name it",
    )
    running.add_argument("trainer", nargs="+", metavar="CMD", help="the trainer and its arguments, after --")
    command("demo-reset", "restart the demo from the beginning", _stack)


def _look(command: Command) -> None:
    """What shows runs, limits and the stack."""
    command("status", "show the state of each part", _stack)
    judging = command("alerts", "show each alert with its limits and where they are set", _order)
    judging.add_argument("run", nargs="?", help="name of the run; without it, the limits without overrides")
    judging.add_argument("--format", choices=("table", "json"), default="table")
    looking = command("inspect", "show the runs and signals found in logs", _read_logs)
    # Texts: a path would take one of the slashes of an address away.
    looking.add_argument("places", nargs="+", metavar="PLACE", help="logs, folders of logs, or pages' URLs")
    looking.add_argument("--markdown", action="store_true", help="as a table of docs/formats.md")
    exporting = command("tensorboard", "export all runs as event files of TensorBoard", _tensorboard)
    exporting.add_argument("--to", type=Path, required=True, metavar="DIR", help="TensorBoard's --logdir")
    exporting.add_argument("--follow", action="store_true", help="keep exporting new steps")
    exporting.add_argument("--runs", type=Path, help="overrides runs.path of the file")


def _react(command: Command) -> None:
    """What changes one run or the GPUs, or keeps evidence."""
    silencing = command("silence", "mute all alerts of a run for a while", _order)
    silencing.add_argument("run", help="name of the run")
    silencing.add_argument(
        "--for", dest="span", default="2h", metavar="TIME", help="duration; default: %(default)s"
    )
    silencing.add_argument("--note", metavar="TEXT", help="reason; shown with the silence")
    marking = command("mark", "re-baseline a run after an intended change", _order)
    marking.add_argument("run", help="name of the run")
    marking.add_argument("--note", metavar="TEXT", help="what changed; shown on the dashboards")
    collecting = command("evidence", "collect evidence about a run in one archive", _evidence)
    collecting.add_argument("run", help="name of the run")
    collecting.add_argument(
        "--out", type=Path, metavar="DIR", help="folder; default: evidence in the state folder"
    )
    acting = command("actions", "show the actions on runs, or stop all", _actions)
    acting.add_argument("--kill-switch", choices=("on", "off"), help="on: no run is changed")
    releasing = command("gpu-release", "release the GPUs for a while, to reset one", _order)
    releasing.add_argument(
        "--for",
        dest="span",
        default=f"{RELEASE_SECONDS}s",
        metavar="TIME",
        help="duration; default: %(default)s",
    )


def _tune(command: Command) -> None:
    """What configures, and tries a configuration."""
    reference = command(
        "config", "print the keys of config.yaml with defaults and reasons", _print_config, config=False
    )
    which = reference.add_mutually_exclusive_group()
    which.add_argument("--defaults", action="store_true", help="all of them, as YAML; this is the default")
    which.add_argument(
        "--explain", metavar="KEY", help="a key with all below it: alerts.KL; or those of an alert: KLHigh"
    )
    replaying = command("backtest", "show which alerts old runs would have raised", _read_logs)
    replaying.add_argument("places", nargs="+", metavar="PATH", help="logs, folders of logs, or globs")
    replaying.add_argument("--format", choices=("table", "json", "html"), default="table")
    replaying.add_argument(
        "--report", type=Path, metavar="DIR", help="write a page with curves, and the JSON"
    )
    replaying.add_argument(
        "--fail-on", choices=("warning", "critical"), help="exit with 1 if such an alert would have fired"
    )
    replaying.add_argument("--jobs", type=_count, default=os.cpu_count(), help="logs read at once")
    replaying.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a value to try")
    replaying.add_argument(
        "--suggest", action="store_true", help="show which limits would have changed the outcome"
    )
    testing = command("test-alert", "send one marked test message to a receiver", _stack)
    testing.add_argument("receiver", help="name of the receiver in config.yaml")
    command("discover", "scrape running containers labelled stepwatch.scrape=PORT", _discover, config=False)
    admitting = command(
        "agent", "create the token with which a node writes to this hub, or list nodes", _agent
    )
    admitting.add_argument(
        "node", nargs="?", help="name of the node; without it, list nodes with their last write"
    )
    changes = admitting.add_mutually_exclusive_group()
    changes.add_argument(
        "--renew", action="store_true", help="replace its token; the old one is invalid at once"
    )
    changes.add_argument("--revoke", action="store_true", help="revoke its token at once")


def _count(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of 1 or more")
    return int(text)


def _up(options: argparse.Namespace) -> int:
    from stepwatch.deploy import backend
    from stepwatch.render import layout

    place = _place()
    if options.config is None:
        layout.write_config(_say)
    file = options.config or layout.CONFIG
    backend.sign_in(file, place, _say)
    stack = backend.to_start(file, place, _say, native=options.native, as_service=options.service)
    if code := stack.up(options.runs, demo=options.demo):
        return code
    for remark in _unmatched(file):
        _say(remark)
    return 0


def _stack(options: argparse.Namespace) -> int:
    from stepwatch.deploy import backend

    place = _place()
    if options.command in ("down", "demo-reset"):
        # Before the check of running parts: `up` may be about to start them.
        with place.lock(f"`make {options.command}`", _say):
            as_service = options.command == "down" and options.service
            stack = backend.running(_file(options, place), place, _say, as_service=as_service)
            return stack.down() if options.command == "down" else stack.demo_reset()
    file = _file(options, place)
    stack = backend.running(file, place, _say)
    if options.command == "status":
        from stepwatch.config import load
        from stepwatch.deploy.native.status import DEGRADED, NOT_RUNNING
        from stepwatch.operate import hub
        from stepwatch.render import layout
        from stepwatch.render.generator import instead_of_usual, pending

        with ThreadPoolExecutor(max_workers=1) as pool:
            # Asks the exporter, which may hang: at the same time as all others.
            overrides = pool.submit(_unmatched, file)
            code = stack.status()
        if code != NOT_RUNNING:
            with suppress(Refused):  # said below
                known = load(file)
                if known.is_hub and not hub.show(known, layout.credentials(), _say):
                    code = DEGRADED
            unusual = instead_of_usual(file) if options.config is None else None
            for remark in filter(None, (unusual, pending(file, stack.rendered, stack.deployment))):
                _say(f"\n{remark}")
            for remark in overrides.result():
                _say(remark)
        return code
    _require_hub(options, file)
    from stepwatch.operate.test_alert import send_test

    return send_test(file, options.receiver, stack, _say)


def _order(options: argparse.Namespace) -> int:
    from stepwatch.operate import limits_report, orders

    file = _file(options, _place())
    if options.command == "mark":
        return orders.mark(file, options.run, options.note, _say)
    if options.command != "gpu-release":
        _require_hub(options, file)
    if options.command == "silence":
        return orders.silence(file, options.run, options.span, options.note, _say)
    if options.command == "gpu-release":
        return orders.gpu_release(file, options.span, _say)
    return limits_report.alerts(file, options.run, options.format, _say)


def _actions(options: argparse.Namespace) -> int:
    from stepwatch.operate import orders

    place = _place()
    file = _file(options, place)
    _require_hub(options, file)
    if options.kill_switch:
        return orders.kill_switch(file, place, options.kill_switch == "on", _say)
    return orders.actions(file, _say)


def _agent(options: argparse.Namespace) -> int:
    from stepwatch.operate import hub
    from stepwatch.render import layout

    return hub.credential(
        _file(options, _place()),
        layout.credentials(),
        options.node,
        renew=options.renew,
        revoke=options.revoke,
    )


def _evidence(options: argparse.Namespace) -> int:
    from stepwatch.operate.evidence import evidence

    place = _place()
    return evidence(_file(options, place), options.run, options.out, place, _say)


def _run(options: argparse.Namespace) -> int:
    from stepwatch.launch.wrapper import Options, run

    if options.dry_run and not options.retry:
        raise Refused("--dry-run: no retry policy is given. Fix: name one with --retry.")
    if options.working_dir and not options.ray:
        raise Refused("--working-dir: only jobs of Ray have one. Fix: name the cluster with --ray.")
    runs, policy = options.runs, None
    if runs is None or options.retry:
        from stepwatch.config import load

        place = _place()
        config = load(_file(options, place))
        runs = (place.runs(config.runs.path, _say) or config.runs.path) if runs is None else runs
        policy = config.retry_policy(options.retry) if options.retry else None
    chosen = Options(
        policy=policy,
        dry=options.dry_run,
        ray=options.ray,
        working_dir=options.working_dir,
        checkpoints=options.checkpoints,
        keep=options.keep_best,
        config=options.config,
    )
    return run(options.trainer, Path(runs), options.name, chosen)


def _print_config(options: argparse.Namespace) -> int:
    from stepwatch.alerts.table import key
    from stepwatch.config import reference
    from stepwatch.config.loading import model_of
    from stepwatch.render import layout

    named, model = options.explain, model_of(layout.config())
    found = reference.defaults(model) if named is None else reference.explain(model, key(named, model.table))
    _say(found.rstrip())
    return 0


def _discover(_: argparse.Namespace) -> int:
    from stepwatch import generate

    return generate.main(["--discover", "docker"])


def _read_logs(options: argparse.Namespace) -> int:
    from stepwatch.config import load
    from stepwatch.render import layout

    file = options.config or layout.config()
    if options.command == "backtest":
        from stepwatch.backtest.command import backtest

        return backtest(options, file, _say)
    from stepwatch.operate.inspection import inspect

    return inspect(options.places, load(file), _say, markdown=options.markdown)


def _tensorboard(options: argparse.Namespace) -> int:
    from stepwatch.operate.tensorboard import tensorboard

    place = _place()
    return tensorboard(_file(options, place), options.to, options.runs, place, _say, follow=options.follow)


def _place() -> State:
    from stepwatch.deploy.native.state import State
    from stepwatch.render import layout

    return State.chosen(layout.STATE)


def _file(options: argparse.Namespace, place: State) -> Path:
    """The configuration file: the one that is named, that of the last `up`, or the usual one."""
    from stepwatch.deploy import backend
    from stepwatch.render import layout

    file: Path = options.config or place.config(_say) or layout.config()
    backend.sign_in(file, place, _say)
    return file


def _require_hub(options: argparse.Namespace, file: Path) -> None:
    """Refuse on an agent what only a hub can answer."""
    from stepwatch.config import load
    from stepwatch.services import agent

    agent.require_hub(load(file), options.command)


def _unmatched(file: Path) -> list[str]:
    """A remark on each override that fits no run; none where the file cannot be used."""
    from stepwatch.config import load
    from stepwatch.operate.limits_report import unmatched

    with suppress(Refused):
        return [f"\n{remark}" for remark in unmatched(load(file))]
    return []


def _say(line: str) -> None:
    try:
        sys.stdout.write(adapt(f"{line}\n"))
        sys.stdout.flush()
    except BrokenPipeError:  # `make up | head`: no one reads on, but the work must be done
        sys.stdout = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  (open until the end)


if __name__ == "__main__":
    process.run(main)
