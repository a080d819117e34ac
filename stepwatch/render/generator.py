"""All files that Stepwatch generates: from a configuration, checked, and written all or nothing."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any
from urllib.parse import urlsplit

from exporter.alert_labels import ABOUT, ONSET, ONSET_STEP
from exporter.gpu.table import CLOCK_EVENTS
from exporter.installation import INSTALLED, adapt
from stepwatch.alerts import incidents
from stepwatch.alerts.identity import REAL_DISKS
from stepwatch.alerts.table import OWN
from stepwatch.config import Config, cluster, load, own_alerts
from stepwatch.config.cluster import is_loopback
from stepwatch.config.deployment import (
    SECRETS,
    TARGETS,
    Deployment,
    InContainers,
    above_ray,
    local_targets,
    mounted,
)
from stepwatch.languages import catalogue
from stepwatch.render import check, exporters, output, panels, receivers
from stepwatch.render.dashboard import BASELINE, Json
from stepwatch.render.layout import CONFIG
from stepwatch.render.templates import SERVICES, RenderError, block, own_dashboards, render, template
from stepwatch.rules import alerting, lines, messages, routing, subjects
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import CHECKOUT, RESOURCES

Place = Callable[[Config], Deployment]

ALL_SERVICES = (*SERVICES, "exporter")
_RECEIVER = PurePosixPath("prometheus/generated/receiver.yml")
RULES_FOLDER = "rules.d"
"""Beside config.yaml: users' own files of Prometheus rules."""
_AGENT_TARGETS = ("runs", "gpu", "node", "prometheus")


@dataclass(frozen=True)
class Outcome:
    """What was generated: the number of files, what changed, a line of each tool that checked it."""

    config: Config
    files: int
    changes: output.Changes
    checks: tuple[str, ...]
    warning: str | None


def containers(config: Config) -> Deployment:
    """The services of compose.yaml, with the folders that they mount."""
    secrets, targets = mounted(CHECKOUT)
    seen = {secrets: SECRETS, targets: TARGETS}
    return InContainers(seen, above_ray(config))


def generate(config: Path, out: Path, *, templates: Path = RESOURCES, place: Place = containers) -> Outcome:
    """Render a configuration, check it, replace what is generated. Raises Refused: nothing was touched."""
    settings = load(config)
    context = _context(settings, place)
    receivers.require_known(settings, config, context["deployment"])
    files = _rendered(templates, context, own=config.parent)
    with output.locked(out), output.staged(out, files) as staging:
        changes = output.compare(out, files)
        try:
            checks = check.check(
                {path.name: path / output.GENERATED for path in staging.iterdir()}, agent=settings.is_agent
            )
        except check.CheckError as error:
            blocks = receivers.refused_blocks(settings, config, context["deployment"])
            raise blocks or _in_users_words(error, settings, files) from None
        output.replace(out, staging, changes)
    return Outcome(settings, len(files), changes, checks, remark(settings, context["deployment"]))


def _in_users_words(error: check.CheckError, config: Config, files: Mapping[PurePosixPath, bytes]) -> Refused:
    """Return the refusal of rules, of users' files by their places: as it is where none is of them."""
    words = str(error).replace(f"{alerting.FOLDER}/{RULES_FOLDER}-", f"{RULES_FOLDER}/")
    if config.table.own:
        words = own_alerts.located(words, files[alerting.FOLDER / f"{OWN}.yml"], config.table.own)
    first, *lines = words.splitlines()
    theirs = [line for line in lines if line.startswith((own_alerts.FOLDER, RULES_FOLDER))]
    return Refused("\n".join((first, *dict.fromkeys(theirs)))) if theirs else error


def stale(config: Path, out: Path, *, templates: Path = RESOURCES) -> output.Changes:
    """Return what `generate` would change; nothing is written. Raises ``Refused``."""
    return output.compare(out, rendered(config, templates, containers))


def rendered(config: Path, templates: Path, place: Place) -> dict[PurePosixPath, bytes]:
    """Return what `generate` would write, by path below its target folder. Raises ``Refused``."""
    return _rendered(templates, _context(load(config), place), own=config.parent)


def render_all(
    config: Config, templates: Path, place: Place, services: Collection[str] = ALL_SERVICES
) -> dict[PurePosixPath, bytes]:
    """Return every generated file but the user's dashboards, by path below the target. Raises ``Refused``."""
    return _rendered(templates, _context(config, place), services)


def training(config: Config, templates: Path, place: Place) -> Json:
    """Return the template of the Training dashboard, as rendered. Raises ``Refused``."""
    return template(templates, _context(config, place), panels.TEMPLATE)


def _rendered(
    templates: Path,
    context: Mapping[str, Any],
    services: Collection[str] = ALL_SERVICES,
    *,
    own: Path | None = None,
) -> dict[PurePosixPath, bytes]:
    """Return every file of the services; with the dashboards and rules of users in the folder ``own``."""
    files = render(templates, context, services)
    if "prometheus" in services:
        files |= alerting.files(context["config"], context["deployment"], context["runbook"])
    if "exporter" in services:
        files |= exporters.documents(context["config"], context["deployment"])
    if context["config"].is_agent:
        files = {path: content for path, content in files.items() if _for_agent(path)}
    if not context["config"].is_hub:
        files.pop(_RECEIVER, None)
    if INSTALLED:
        files = {path: adapt(content.decode()).encode() for path, content in files.items()}
    if own is None or context["config"].is_agent:
        return files
    return {**files, **own_dashboards(own / "dashboards", files), **own_rules(own / RULES_FOLDER)}


def own_rules(folder: Path) -> dict[PurePosixPath, bytes]:
    """Return users' files of Prometheus rules, as they are. Raises ``RenderError`` for an unreadable one."""
    try:
        return {
            alerting.FOLDER / f"{RULES_FOLDER}-{path.name}": path.read_bytes()
            for path in sorted(folder.glob("[!_.]*.yml"))
        }
    except OSError as error:
        raise RenderError(
            f"{error.filename}: cannot be read ({error.strerror}). Expected: a file of Prometheus rules. "
            "Fix: check its permissions."
        ) from error


def _for_agent(path: PurePosixPath) -> bool:
    """Return whether a file is one that the parts of an agent read; rules and dashboards are the hub's."""
    service, _, *below = path.parts
    if service == "prometheus":
        return below[0] == "prometheus.yml" or (below[0] == "targets" and path.stem in _AGENT_TARGETS)
    return service == "exporter"


def _context(config: Config, place: Place) -> dict[str, Any]:
    deployment = place(config)
    runbook = messages.entries(RESOURCES / "docs/runbook.md")
    return {
        "config": config,
        "runbook": runbook,
        "cluster": cluster,
        "deployment": deployment,
        "local_targets": local_targets(deployment),
        "translate": catalogue(config.language),
        "lines": lines.lines(config, config.table.alerts),
        "dashboard_lines": lines.lines(config, alerting.translated(config.table.alerts, config)),
        "subjects": lines.subjects(config.table.alerts),
        "notices": panels.notices(config, runbook),
        "on_show": partial(lines.on_show, config),
        "about": ABOUT,
        "pages": [*subjects.pages(config.table.alerts)],
        "about_nodes": subjects.shown_on("stepwatch-nodes", config.table.alerts),
        "onset_time": ONSET,
        "waits": alerting.waits(config, config.table.alerts),
        "onset_step": ONSET_STEP,
        "text_info": messages.TEXT_INFO,
        "shown_state": subjects.SHOWN_STATE,
        "shown_states": subjects.SHOWN_STATES,
        "clock_events": [name for name in CLOCK_EVENTS if name != "idle"],
        "baseline_mark": BASELINE,
        "real_disks": REAL_DISKS,
        "own_signals": own_alerts.drawn(config.table.own),
        "messages": messages,
        "incidents": incidents,
        "codes": {each.codes.table: each.codes.texts for each in config.table.alerts if each.codes},
        "routing": routing,
        "block": block,
        "notifying": partial(receivers.notifying, deployment),
        "pinging": partial(receivers.pinging, deployment),
    }


def remark(config: Config, deployment: Deployment) -> str | None:
    """Return the warnings about lost alerts and about links that others cannot open, or ``None``."""
    if config.is_agent:
        return None
    lost = [
        f"Warning: receivers: {gap}. Expected: a receiver for every critical alert. Fix: add critical to "
        "the severities of a receiver without hours."
        for gap in routing.gaps(config)
    ]
    elsewhere = (
        "No rules are evaluated here (`rules: none`). Until a central ruler evaluates "
        f"{alerting.FOLDER}, no alert fires, and dashboards lack the results of recording rules."
    )
    warnings = [*lost, *_local_links(config, deployment), *[elsewhere] * (config.rules == "none")]
    return "\n".join(warnings) or None


def _local_links(config: Config, deployment: Deployment) -> Iterator[str]:
    pages = ("grafana" if messages.has_grafana(config, deployment) else "exporter", "alertmanager")
    local = [f"links.{part}" for part in pages if is_loopback(urlsplit(config.link(part)).hostname)]
    if not config.receivers or not local:
        return
    names = ", ".join(receiver.name for receiver in config.receivers)
    yield (
        f"Warning: {' and '.join(local)}: notifications to {names} link to {config.link(pages[0])}, which "
        "only this machine can open. Expected: addresses that recipients can reach. Fix: set "
        f"{'them' if len(local) > 1 else 'it'} to the URL of your proxy or of this host, such as "
        "https://stepwatch.example.org."
    )


def instead_of_usual(config: Path) -> str | None:
    """Return a note if the file in force is not the checkout's own, else ``None``."""
    if config.resolve() == CONFIG.resolve():
        return None
    return f"{config} is in effect (from the last `make up CONFIG=file`); edits of {CONFIG} have no effect."


def pending(config: Path, out: Path, place: Place) -> str | None:
    """Return a note about an edit that is not in effect, or ``None``."""
    try:
        files = rendered(config, RESOURCES, place)
        changes = output.compare(out, files)
    except Refused as refusal:
        return f"{config.name} is invalid; the last rendered settings are in effect.\n  {refusal}"
    # Which targets there are depends on the machine, not on config.yaml.
    edited = [path for _, path in changes if "targets" not in path.parts]
    if edited:
        usual = config.resolve() == CONFIG.resolve()
        up = "`make up`" if usual else f"`make up CONFIG={shlex.quote(str(config))}`"
        if all("dashboards" in path.parts for path in edited):
            return f"Dashboards were changed since they were rendered: {up} shows them."
        return f"{config.name} was changed since it was rendered: {up} applies it."
    return None
