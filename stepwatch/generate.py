"""The command that renders config.yaml for Prometheus, Alertmanager and Grafana."""

import argparse
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, TextIO

from exporter.installation import INSTALLED, adapt
from stepwatch import check, exporters, links, output, panels, promql
from stepwatch.alerts import codes, gpu_load, incidents
from stepwatch.alerts.catalogue import TABLE
from stepwatch.compose import dotenv, variables
from stepwatch.config import Config, load
from stepwatch.dashboard import Json
from stepwatch.deployment import TARGETS, Deployment, InContainers, above_ray, mounted
from stepwatch.environment import CHECKOUT
from stepwatch.layout import RESOURCES, STATE
from stepwatch.native.state import State
from stepwatch.render import SERVICES, render, template
from stepwatch.rules import files as rule_files
from stepwatch.rules import lines, messages
from stepwatch.schema.errors import Refused

if TYPE_CHECKING:
    from stepwatch.discovery.targets import Found

Place = Callable[[Config], Deployment]

ALL_SERVICES = (*SERVICES, "exporter")

DONE, STALE, REFUSED = 0, 1, 2
LEFT_OUT = 1
SHOWN_CHANGES = 12

# What a file that differs means to anyone who generates, and to anyone who only checks.
_DONE_WORDS = {"missing": "new", "different": "changed", "orphan": "deleted"}


@dataclass(frozen=True)
class Outcome:
    """What was generated.

    Attributes:
        config: What was rendered.
        files: How many files there are now.
        changes: Which of them are new or changed, and which others were deleted.
        checks: What the tools of Prometheus and Alertmanager said, a line each.
        warning: What will work, but hardly as intended; ``None`` if there is nothing.
    """

    config: Config
    files: int
    changes: output.Changes
    checks: tuple[str, ...]
    warning: str | None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command.

    Returns:
        0 done; 1 `--check` finds stale files, or `--discover` a container that cannot be a target; 2 refused.
    """
    options = _parser().parse_args(arguments)
    try:
        if options.discover:
            from stepwatch.discovery.command import discover  # noqa: PLC0415  (a client of Docker: rendering needs none)

            return _report_found(*discover(State.chosen(STATE)))
        if options.check:
            return _report_stale(stale(options.config, options.out, templates=CHECKOUT))
        outcome = generate(options.config, options.out, templates=CHECKOUT)
        _report(outcome)
        _tell_compose(options, outcome.config)
        if options.reload is not None:
            _say(sys.stdout, [_reload(options, outcome.config)])
    except Refused as refusal:
        _say(sys.stderr, [str(refusal)])
        return REFUSED
    return DONE


def containers(config: Config) -> Deployment:
    """The services of compose.yaml, with the folders that they mount."""
    secrets, targets = mounted(CHECKOUT)
    seen = {secrets: "/etc/stepwatch/secrets", targets: TARGETS}
    return InContainers(seen, above_ray(config))


def generate(config: Path, out: Path, *, templates: Path = RESOURCES, place: Place = containers) -> Outcome:
    """Render a configuration, have it checked, and replace what is generated below a folder.

    Args:
        config: The configuration file.
        out: The folder that gets `<service>/generated`.
        templates: The folder that holds `<service>/templates`.
        place: Where the parts run that will read it.

    Raises:
        Refused: The configuration is wrong, a tool refuses the result, or it cannot be written. Its
            text says all; no file was touched.
    """
    output.recover(out)
    settings = load(config)
    context = _context(settings, place)
    check.require_webhook_url_file(settings, config, context["deployment"])
    files = _rendered(templates, context)
    with output.locked(out), output.staged(out, files) as staging:
        changes = output.compare(out, files)
        checks = check.check(staging.rendered())
        output.replace(out, staging, changes)
    return Outcome(settings, len(files), changes, checks, links.remark(settings, context["deployment"]))


def stale(config: Path, out: Path, *, templates: Path = RESOURCES) -> output.Changes:
    """Return what `generate` would change; nothing is written.

    Raises:
        Refused: The configuration is wrong, or what is there cannot be read.
    """
    return output.compare(out, rendered(config, templates, containers))


def rendered(config: Path, templates: Path, place: Place) -> dict[PurePosixPath, bytes]:
    """Return what `generate` would write, by path below its target folder.

    Raises:
        Refused: The configuration is wrong.
    """
    return render_all(load(config), templates, place)


def render_all(
    config: Config, templates: Path, place: Place, services: Collection[str] = ALL_SERVICES
) -> dict[PurePosixPath, bytes]:
    """Return every generated file of a configuration, or of these services, by path below the target folder.

    Raises:
        Refused: A template fails, or a file that the configuration names cannot be seen.
    """
    return _rendered(templates, _context(config, place), services)


def training(config: Config, templates: Path, place: Place) -> Json:
    """Return the template of the Training dashboard, as rendered.

    Raises:
        Refused: The template fails.
    """
    return template(templates, _context(config, place), panels.TEMPLATE)


def _rendered(
    templates: Path, context: Mapping[str, Any], services: Collection[str] = ALL_SERVICES
) -> dict[PurePosixPath, bytes]:
    """Every file of the services: of templates, and of the table of alerts."""
    files = render(templates, context, services)
    if "prometheus" in services:
        files |= rule_files.files(context["config"], context["deployment"])
    if "exporter" in services:
        files |= exporters.documents(context["config"], context["deployment"])
    return {path: adapt(content.decode()).encode() for path, content in files.items()} if INSTALLED else files


def _context(config: Config, place: Place) -> dict[str, Any]:
    return {
        "config": config,
        "deployment": place(config),
        "promql": promql,
        "lines": lines.lines(config, TABLE),
        "subjects": lines.subjects(TABLE),
        "on_show": lines.on_show,
        "gpu_load": gpu_load,
        "messages": messages,
        "incidents": incidents,
        "codes": codes,
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="generate.py", description="Render config.yaml for Prometheus, Alertmanager and Grafana."
    )
    parser.add_argument("--config", type=Path, default=CHECKOUT / "config.yaml", help="the file to render")
    parser.add_argument(
        "--out",
        type=Path,
        default=CHECKOUT,
        help="the folder that gets <service>/generated (default: %(default)s)",
    )
    parser.add_argument(
        "--reload",
        metavar="URL",
        nargs="?",
        const="",
        help="have Alertmanager (at this address, or where config.yaml has it) read its new settings",
    )
    instead = parser.add_mutually_exclusive_group()
    instead.add_argument("--check", action="store_true", help="write nothing; exit 1 if files are stale")
    instead.add_argument(
        "--discover",
        choices=("docker",),
        help="render nothing; have Prometheus scrape the running containers labelled stepwatch.scrape=PORT",
    )
    return parser


def _report(outcome: Outcome) -> None:
    lines = [f"{_DONE_WORDS[kind]} {path}" for kind, path in outcome.changes]
    summary = (
        f"{outcome.files} files, {len(lines)} changed."
        if lines
        else f"{outcome.files} files, all up to date."
    )
    _say(sys.stdout, [*_few(lines), *outcome.checks, summary])
    if outcome.warning:
        _say(sys.stderr, [outcome.warning])


def _tell_compose(options: argparse.Namespace, config: Config) -> None:
    """Have a bare `docker compose` know the ports and links of this configuration."""
    if (options.config, options.out) == (CHECKOUT / "config.yaml", CHECKOUT):
        dotenv.update(CHECKOUT / ".env", variables.of_config(config))


def _reload(options: argparse.Namespace, config: Config) -> str:
    from stepwatch.reload import reload  # noqa: PLC0415  (an HTTP client, which takes its time to load)

    address = options.reload or f"http://{config.address('alertmanager')}"
    return reload(address, options.out / "alertmanager/generated/alertmanager.yml")


def _report_stale(changes: output.Changes) -> int:
    if not changes:
        return DONE
    lines = [f"{kind} {path}" for kind, path in changes]
    _say(sys.stdout, [*lines, "The files above are stale. Fix: run python generate.py."])
    return STALE


def _report_found(file: Path, found: "Found") -> int:
    _say(
        sys.stdout,
        [*_few([str(target) for target in found.targets]), f"{len(found.targets)} targets in {file}."],
    )
    _say(sys.stderr, _few([*found.faults]))
    return LEFT_OUT if found.faults else DONE


def _few(lines: list[str]) -> list[str]:
    if len(lines) <= SHOWN_CHANGES:
        return lines
    return [*lines[:SHOWN_CHANGES], f"... and {len(lines) - SHOWN_CHANGES} more"]


def _say(stream: TextIO, lines: Iterable[str]) -> None:
    stream.writelines(adapt(f"{line}\n") for line in lines)
