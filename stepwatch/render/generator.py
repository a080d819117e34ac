"""All files that Stepwatch generates: from a configuration, checked, and written all or nothing."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from exporter.installation import INSTALLED, adapt
from stepwatch.alerts import codes, gpu_load, incidents
from stepwatch.alerts.catalogue import TABLE
from stepwatch.config import Config, load
from stepwatch.config.deployment import TARGETS, Deployment, InContainers, above_ray, mounted
from stepwatch.render import check, exporters, links, output, panels, promql
from stepwatch.render.dashboard import Json
from stepwatch.render.layout import RESOURCES
from stepwatch.render.templates import SERVICES, render, template
from stepwatch.rules import files as rule_files
from stepwatch.rules import lines, messages
from stepwatch.system.environment import CHECKOUT

Place = Callable[[Config], Deployment]

ALL_SERVICES = (*SERVICES, "exporter")


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
