"""Templates to texts in memory: `<service>/templates/X.j2` is `<service>/generated/X`; `_X` are macros."""

from __future__ import annotations

import json
import sys
import traceback
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import jinja2
import orjson
import yaml
from jinja2.bccache import Bucket

from stepwatch.alerts import promql
from stepwatch.config.yaml_document import LOADER, parse
from stepwatch.languages import Catalogue
from stepwatch.render import panels
from stepwatch.render.dashboard import Json, assemble
from stepwatch.render.dashboard_texts import translated
from stepwatch.render.layout import TEMPLATE_CACHE
from stepwatch.render.output import Files
from stepwatch.rules.lines import Line
from stepwatch.schema.errors import ConfigError, Refused, quoted
from stepwatch.schema.scalars import alternation

SERVICES = ("prometheus", "alertmanager", "grafana")
DASHBOARDS = PurePosixPath("grafana/templates/dashboards")
DASHBOARD_SUFFIX = ".yaml.j2"
_EXPORT = (
    'Expected: a dashboard as Grafana exports it. Fix: export it again as JSON with the model "Classic", '
    '"Export for sharing externally" off.'
)

_DUMPER: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)

_COMMENTS = {".yml": "# {}\n", ".yaml": "# {}\n", ".tmpl": "{{{{- /* {} */ -}}}}\n"}


@dataclass(frozen=True)
class Operands:
    """Operands of dashboards about the runs that ``matcher`` selects, aggregated as in rules."""

    matcher: str = ""

    def metric(self, name: str, **labels: str) -> str:
        """Return a metric of the runs, with these labels."""
        inside = [f'{label}="{value}"' for label, value in labels.items()]
        matchers = ",".join(filter(None, [*inside, self.matcher]))
        return promql.expand(f"by_run({name}{{{matchers}}})" if matchers else f"by_run({name})", str)

    def of(self, statistic: str, signal: str, **labels: str) -> str:
        """Return a statistic of a signal: ewma, best."""
        return self.metric(f"rl_{statistic}", signal=signal, **labels)

    def promql(self, text: str) -> str:
        """Return PromQL with macros of the table of alerts for them."""
        return promql.of(promql.expand(text, str), self.matcher)

    def selector(self, name: str) -> str:
        """Return the bare selector."""
        return f"{name}{{{self.matcher}}}" if self.matcher else name


class RenderError(Refused):
    """Raised when a template cannot be rendered, or renders to what cannot be read back."""


class _Compiled(jinja2.FileSystemBytecodeCache):
    """A cache of compiled templates, on disk as Python's of modules and in memory; compiling is slow."""

    _code: ClassVar[dict[tuple[str, str], bytes]] = {}

    def load_bytecode(self, bucket: Bucket) -> None:
        if code := self._code.get((bucket.key, bucket.checksum)):
            bucket.bytecode_from_string(code)
        else:
            with suppress(OSError):
                super().load_bytecode(bucket)

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._code[bucket.key, bucket.checksum] = bucket.bytecode_to_string()
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                Path(self.directory).mkdir(parents=True, exist_ok=True)
                super().dump_bytecode(bucket)


def render(
    root: Path, context: Mapping[str, Any], services: Collection[str] = SERVICES
) -> dict[PurePosixPath, bytes]:
    """Return every generated file of some services by path below the target. Raises ``RenderError``."""
    jinja = environment(root, context)
    files: dict[PurePosixPath, bytes] = {}
    for template in _templates(root, services):
        if _is_dashboard(template):
            rendered = _render(jinja, template)
            parsed = _parsed(rendered, template)
            content = _dashboard(rendered, template, tuple(context["dashboard_lines"]), context["translate"])
            if template == panels.TEMPLATE and "exporter" in services:
                drawn = panels.panels(parsed, context["lines"])
                files[panels.FILE] = panels.file(drawn, context["subjects"], context["notices"])
        else:
            text = _render(jinja, template)
            suffix = target(template).suffix
            if suffix not in _COMMENTS:
                known = ", ".join(_COMMENTS)
                raise RenderError(
                    f"{template}: no comment is known for {suffix or 'it'}. Fix: name it {known}."
                )
            if not text.endswith("\n"):
                text += "\n"
            if suffix in (".yml", ".yaml"):
                try:
                    yaml.load(text, Loader=LOADER)  # noqa: S506  LOADER is the safe one
                except yaml.YAMLError as error:
                    at = getattr(error, "problem_mark", None)
                    line = text.splitlines()[at.line : at.line + 1] if at else []
                    raise RenderError(
                        f"{template}: what it renders is not valid YAML ({getattr(error, 'problem', error)}"
                        f"{', in line ' + repr(line[0]) if line else ''}). "
                        "Fix: correct the template; nothing was written."
                    ) from error
            content = (_COMMENTS[suffix].format(_mark(template)) + text).encode()
        files[target(template)] = content
    return files


def own_dashboards(folder: Path, ours: Files) -> dict[PurePosixPath, bytes]:
    """Return the user's own dashboards by path; raises ``RenderError`` for one uid or title twice."""
    files: dict[PurePosixPath, bytes] = {}
    place = target(DASHBOARDS / f"any{DASHBOARD_SUFFIX}").parent
    taken = {
        name: f"Stepwatch's dashboard {path.stem}"
        for path, content in ours.items()
        if path.parent == place
        for name in _names(json.loads(content))
    }
    for path in sorted(folder.glob("[!_.]*.json")):
        dashboard = _exported(path)
        if place / path.name in ours:
            raise RenderError(
                f"{path}: a dashboard of Stepwatch has this name. Expected: another. Fix: rename the file."
            )
        names = _names(dashboard)
        for word, value in sorted(names & taken.keys()):
            raise RenderError(
                f"{path}: {word}: {value} is already used by {taken[word, value]}. Expected: a unique "
                f"{word}; otherwise Grafana updates neither. Fix: change `{word}`, or delete one of the two."
            )
        taken |= dict.fromkeys(names, str(path))
        mark = f"From {path.name} in the folder dashboards beside config.yaml. Do not edit: change that file."
        files[place / path.name] = _json({"__generated": mark, **dashboard})
    return files


def _exported(path: Path) -> Json:
    try:
        found, fault = orjson.loads(path.read_bytes()), "not a dashboard with `uid`, `title` and `panels`"
    except (OSError, ValueError) as error:
        found, fault = None, str(error)
    if not (
        isinstance(found, dict)
        and all(isinstance(found.get(key), str) and found[key] for key in ("uid", "title"))
        and isinstance(found.get("panels"), list)
    ):
        raise RenderError(f"{path}: {fault}. {_EXPORT}")
    if found.get("__inputs"):
        raise RenderError(
            f"{path}: __inputs: asks for values that only an import in Grafana gives. {_EXPORT}"
        )
    return found


def _names(dashboard: Json) -> set[tuple[str, str]]:
    """Return what no two dashboards of a folder in Grafana may share."""
    return {(word, quoted(dashboard[word])) for word in ("uid", "title")}


def template(root: Path, context: Mapping[str, Any], path: PurePosixPath) -> Json:
    """Return the template of a dashboard, as rendered. Raises ``RenderError``."""
    return _parsed(_render(environment(root, context), path), path)


def target(template: PurePosixPath) -> PurePosixPath:
    """Return the path that a template renders to."""
    path = PurePosixPath(template.parts[0], "generated", *template.parts[2:]).with_suffix("")
    return path.with_suffix(".json") if _is_dashboard(template) else path


# A process that renders again, as after each override of a backtest, gets the same texts for most dashboards.
@lru_cache(maxsize=32)
def _dashboard(
    rendered: str, template: PurePosixPath, lines: tuple[Line, ...], translate: Catalogue
) -> bytes:
    document = translated(
        _parsed(rendered, template), translate.within(template.name.removesuffix(DASHBOARD_SUFFIX))
    )
    dashboard = {"__generated": _mark(template), **assemble(document, lines, translate)}
    return _json(dashboard)


def _json(dashboard: Json) -> bytes:
    return (json.dumps(dashboard, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()


def _mark(template: PurePosixPath) -> str:
    return f"Generated by generate.py from {template}. Do not edit: change config.yaml or the template."


def _is_dashboard(template: PurePosixPath) -> bool:
    return DASHBOARDS in template.parents and template.name.endswith((DASHBOARD_SUFFIX, ".yml.j2"))


def _templates(root: Path, services: Collection[str]) -> Iterator[PurePosixPath]:
    for service in services:
        for path in sorted((root / service / "templates").rglob("*.j2")):
            template = PurePosixPath(path.relative_to(root).as_posix())
            if not any(part.startswith(("_", ".")) for part in template.parts):
                yield template


def environment(root: Path, context: Mapping[str, Any]) -> jinja2.Environment:
    """Return the renderer of the templates below a folder; `context` has their variables."""
    made = jinja2.Environment(
        block_start_string="<%",
        block_end_string="%>",
        variable_start_string="<%=",
        variable_end_string="%>",
        comment_start_string="<%#",
        comment_end_string="#%>",
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,  # noqa: S701  the output is YAML and JSON for servers, not HTML
        finalize=_written,
        loader=jinja2.FileSystemLoader(root),
        bytecode_cache=_Compiled(str(TEMPLATE_CACHE or root / "__pycache__")),
    )
    made.filters |= {"yaml": quoted, "re2": alternation, "json": json.dumps}
    made.globals.update(context, Operands=Operands)
    return made


def _written(value: Any) -> Any:
    if value is None:
        raise TypeError("None would be written as text; use a condition, or the filter yaml")
    return str(value).lower() if isinstance(value, bool) else value


def block(value: Any) -> str:
    """Return mappings and lists as YAML of a line for each value, without a line end."""
    text = yaml.dump(value, Dumper=_DUMPER, sort_keys=False, allow_unicode=True, width=10**6)
    return str(text).rstrip("\n")


def _render(jinja: jinja2.Environment, template: PurePosixPath) -> str:
    try:
        return jinja.get_template(str(template)).render()
    except jinja2.TemplateSyntaxError as error:
        raise _failure(error.name or str(template), error.lineno, error) from error
    except Refused:  # config.yaml asks for what the deployment lacks: the template is right
        raise
    except Exception as error:
        raise _failure(*_place(error, template), error) from error


def _place(error: Exception, template: PurePosixPath) -> tuple[str, int | None]:
    """Return template and line where rendering stopped: the innermost template of the traceback."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename.endswith(".j2"):
            path = PurePosixPath(Path(frame.filename).as_posix())
            return str(PurePosixPath(*path.parts[path.parts.index("templates") - 1 :])), frame.lineno
    return str(template), None


def _failure(template: str, line: int | None, error: Exception) -> RenderError:
    place = f"{template}:{line}" if line else template
    reason = str(error) if isinstance(error, jinja2.TemplateError) else f"{type(error).__name__}: {error}"
    if isinstance(error, jinja2.TemplateNotFound):
        reason = f"there is no template {error.name}"
    return RenderError(f"{place}: {reason}. Fix: correct the template; nothing was written.")


@lru_cache(maxsize=32)
def _parsed(rendered: str, template: PurePosixPath) -> Json:
    document = parse(rendered, f"{template}, as rendered")
    if document.problems or not isinstance(document.values, dict):
        raise ConfigError(f"{template}, as rendered", document.problems)
    return document.values
