"""Dashboards of templates as the classic JSON of Grafana 10 to 13; limits come from the alerts."""

from __future__ import annotations

import itertools
import re
import string
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from stepwatch.languages import Catalogue
from stepwatch.rules.lines import Line
from stepwatch.schema.errors import Refused

Json = dict[str, Any]

GRID_COLUMNS = 24
SCHEMA_VERSION = 38  # of Grafana 10.0; later ones migrate it on loading
PROMETHEUS: Json = {"type": "prometheus", "uid": "stepwatch-prometheus"}
MARK_COLOUR = "blue"
SEVERITY_COLOURS = {"critical": "red", "warning": "orange", "info": "blue"}
"""Reserved: no curve has the colour of a severity."""
CURVE_COLOURS = (
    *("#3B82D6", "#288A45", "#BC3FAB", "#8A8FA3", "#8C3BDC"),
    *("#2FA39B", "#5B6BB0", "#8F5661"),
    *("#F820F8", "#9880F8", "#2098C8", "#688050"),
)
"""Of the curves of a panel, in their order. `tests/grafana/test_colours.py` measures that they are readable
on both themes; that the first five differ, and all from the colours of severities, for the colour-blind."""
CURVE_DASHES = ((), (10, 4), (3, 4))
"""Of the curves beyond as many as there are colours, which these have again."""
LIMIT_DASHES = ((8, 8), (20, 6), (2, 4), (14, 4, 2, 4), (4, 12), (20, 4, 2, 4, 2, 4))
"""Of the limits of a panel that have one severity, and with it one colour: lengths of dashes and gaps."""
_FORMATS = {"table": "table", "trend": "table", "heatmap": "heatmap"}
_NUMBERED = {"GPU {{gpu}}": r"/^GPU \d*{}\b/", "{{machine}}": r"/{}\D*$/"}
"""Legends of many curves, with the pattern of those whose number ends in a digit."""
_NOT_IN_LEGEND = {"custom.hideFrom": {"legend": True, "tooltip": False, "viz": False}}
BY_STEP = "Value #B\\run"
"""The field with the steps, which is what Grafana calls it once `_by_step` has turned the answers over."""
BASELINE = "(baseline)"
"""How the name of the run ends that the others of a panel over steps are measured by."""

# A template's own words. What else a panel holds is Grafana's and goes through as it is.
_PANEL_WORDS = {"look", "width", "unit", "field", "queries", "limits", "columns", "join", "require", "sort"}
_DASHBOARD_WORDS = {"rows", "variables", "annotations", "scraped"}


def assemble(document: Json, lines: Sequence[Line] = (), translate: Catalogue | None = None) -> Json:
    """Return the classic JSON of a dashboard template, rates over four times ``scraped``. Raises Refused."""
    _demand(document, ("uid", "title", "rows"), "a dashboard")
    uid = document["uid"]
    known = [line for line in lines if line.dashboard == uid or line.number is not None]
    panels = list(_panels(uid, document["rows"], known, translate or Catalogue()))
    if "scraped" in document:
        for panel in itertools.chain.from_iterable((each, *each.get("panels", ())) for each in panels):
            for target in panel.get("targets", ()):
                target["interval"] = document["scraped"]
    return {
        "schemaVersion": SCHEMA_VERSION,
        "editable": False,
        "timezone": "browser",
        **{key: value for key, value in document.items() if key not in _DASHBOARD_WORDS},
        "templating": {"list": [_variable(each) for each in document.get("variables", [])]},
        "annotations": {"list": [_annotation(each) for each in document.get("annotations", [])]},
        "panels": panels,
    }


def _demand(part: Json, words: Iterable[str], what: str) -> None:
    for word in words:
        if word not in part:
            raise Refused(
                f"{what} ({part.get('title', 'without a title')}) has no `{word}`. "
                f"Expected: {', '.join(words)}. Fix: add it to the template."
            )


def _variable(short: Json) -> Json:
    if short.get("type") == "textbox":
        value = {"text": short["query"], "value": short["query"]}
        return {"hide": 0, **short, "current": value, "options": [{**value, "selected": True}]}
    # Grafana does not recognise a function such as `query_result` around more than one line.
    line = " ".join(short["query"].split())
    return {
        "type": "query",
        "datasource": PROMETHEUS,
        "refresh": 2,  # whenever the time range changes: runs come and go
        "sort": 1,
        "multi": False,
        "includeAll": False,
        "definition": line,
        "current": {},
        "options": [],
        **short,
        "query": {"query": line, "refId": "StandardVariableQuery"},
    }


def _annotation(short: Json) -> Json:
    """Return marks at the time (ms) that their series has; Grafana 10 reads `expr`, later ones `target`."""
    severity = short.get("severity")
    query = {"expr": short["expr"].strip(), "refId": "Anno"}
    return {
        "datasource": PROMETHEUS,
        "enable": True,
        "hide": False,
        "iconColor": SEVERITY_COLOURS[severity] if severity else MARK_COLOUR,
        "name": short["name"],
        "expr": query["expr"],
        "titleFormat": short["title"],
        "textFormat": short["text"],
        "tagKeys": "severity",
        "useValueForTime": True,
        "target": query,
    }


def _panels(dashboard: str, rows: list[Json], lines: Sequence[Line], translate: Catalogue) -> Iterator[Json]:
    """Yield the panels; a row with a `title` has a line above it, by which a `collapsed` one is opened."""
    numbers, y = itertools.count(1), 0
    for row in rows:
        head: Json = {}
        if "title" in row:
            head = {
                "id": next(numbers),
                "type": "row",
                "title": row["title"],
                "collapsed": row.get("collapsed", False),
                "gridPos": {"x": 0, "y": y, "w": GRID_COLUMNS, "h": 1},
                "panels": [],
            }
            yield head
            y += 1
        x = 0
        for cell, width in zip(row["panels"], _widths(dashboard, row["panels"]), strict=True):
            stacked = in_cell(cell)
            height = row["height"] // len(stacked)
            for index, panel in enumerate(stacked):
                position = {"x": x, "y": y + index * height, "w": width, "h": height}
                made = {
                    "id": next(numbers),
                    "gridPos": position,
                    **_panel(dashboard, panel, lines, translate),
                }
                if head.get("collapsed"):
                    head["panels"].append(made)
                else:
                    yield made
            x += width
        y += 0 if head.get("collapsed") else row["height"]


def in_cell(cell: Json) -> list[Json]:
    """Return the panels of a place in a row, from the top."""
    panels: list[Json] = cell.get("stacked", [cell])
    return panels


def _widths(dashboard: str, panels: list[Json]) -> list[int]:
    """Return the widths of a row's panels: as asked, the rest shared alike."""
    taken = sum(panel.get("width", 0) for panel in panels)
    sharing = sum("width" not in panel for panel in panels)
    if taken + sharing > GRID_COLUMNS:
        first = in_cell(panels[0])[0].get("title")
        raise Refused(
            f"{dashboard}: the row of {first} takes {taken + sharing} columns. "
            f"Expected: at most {GRID_COLUMNS}. Fix: give its panels less `width`."
        )
    shares = iter([(GRID_COLUMNS - taken + index) // sharing for index in reversed(range(sharing))])
    return [panel["width"] if "width" in panel else next(shares) for panel in panels]


def _panel(dashboard: str, panel: Json, lines: Sequence[Line], translate: Catalogue) -> Json:
    _demand(panel, ("title", "description", "unit", "look", "queries"), f"{dashboard}: a panel")
    look, columns = panel["look"], panel.get("columns", {})
    by_step = look["type"] == "trend"
    own = (_limit(panel, line, dashboard, translate) for line in shown(panel, lines))
    limits = [*panel.get("limits", []), *own]
    drawn = [limit for limit in limits if "expr" in limit]
    if look["type"] == "timeseries":
        asked = [*panel["queries"], *_dashed(drawn)]
    else:
        asked = [each for query in panel["queries"] for each in _coloured(query, drawn)]
    # A query without an expression shows a limit that is off.
    asking = [query for query in asked if query["expr"].strip()]
    queries = list(zip(string.ascii_uppercase, asking, strict=False))
    instant = look["type"] in ("stat", "table") and look["options"].get("graphMode", "none") == "none"
    styles = list(_colours(queries)) if look["type"] == "timeseries" else []
    if by_step:
        dashed = {"color": _fixed(CURVE_COLOURS[3]), "custom.lineStyle": {"fill": "dash", "dash": [10, 4]}}
        styles.append(_override("byName", BY_STEP, {"unit": "none"}))
        styles.append(_override("byRegexp", f"/ {re.escape(BASELINE)}$/", dashed))
    styles += [_override("byFrameRefID", letter, query["as"]) for letter, query in queries if "as" in query]
    # The text of `noValue`, for a table without rows, must not be in each empty cell.
    styles += [
        _override(
            "byName",
            _heading(columns, name),
            {"noValue": "", **{key: value for key, value in style.items() if key != "displayName"}},
        )
        for name, style in columns.items()
    ]
    return {
        "type": look["type"],
        "datasource": PROMETHEUS,
        **{key: value for key, value in panel.items() if key not in _PANEL_WORDS},
        "options": {**({"xField": BY_STEP} if by_step else {}), **look["options"]},
        "targets": [
            {
                "refId": letter,
                "datasource": PROMETHEUS,
                "editorMode": "code",
                "expr": query["expr"].strip(),
                "legendFormat": query.get("legend", "__auto"),
                "instant": instant,
                "range": not instant,
                "format": _FORMATS.get(look["type"], "time_series"),
            }
            for letter, query in queries
        ],
        "fieldConfig": {
            "defaults": {
                **look["field"],
                "unit": panel["unit"],
                "thresholds": _thresholds(limits),
                **panel.get("field", {}),
            },
            "overrides": styles,
        },
        "transformations": _by_step(translate) if by_step else _columns(columns, queries, panel),
    }


def _coloured(query: Json, limits: list[Json]) -> Iterator[Json]:
    """Yield a figure, and the same in the colour of a limit for where it is past that."""
    past = [f"{query['expr'].strip()} > ({limit['expr']})" for limit in limits]
    yield {**query, "expr": "\nunless ".join([query["expr"], *(f"({each})" for each in past)])}
    for limit, expr in zip(limits, past, strict=True):
        yield {**query, "expr": expr, "as": {"color": _fixed(SEVERITY_COLOURS[limit["severity"]])}}


def _colours(queries: Sequence[tuple[str, Json]]) -> Iterator[Json]:
    """Yield each curve's colour: of several of a query by names, or the last digit of the GPU or machine."""
    styles = _curve_styles()
    for letter, query in queries:
        legend = query.get("legend", "")
        if numbered := next((_NUMBERED[each] for each in _NUMBERED if each in legend), None):
            few = legend == "GPU {{gpu}}" and len(queries) == 1
            first = {"color": _fixed(CURVE_COLOURS[0]), **({} if few else _NOT_IN_LEGEND)}
            yield _override("byFrameRefID", letter, first)
            if few:
                yield _override("byRegexp", r"/^GPU ([89]|\d\d)/", _NOT_IN_LEGEND)
            for digit, colour in zip(range(10), CURVE_COLOURS, strict=False):
                yield _override("byRegexp", numbered.format(digit), {"color": _fixed(colour)})
        elif "names" in query:
            for name in query["names"]:
                yield _override("byName", name, next(styles))
        elif "color" not in query.get("as", {}):
            yield _override("byFrameRefID", letter, next(styles))


def _curve_styles() -> Iterator[Json]:
    """Yield a style for each curve of a panel: another colour, or the same with other dashes."""
    for dash, colour in itertools.cycle(itertools.product(CURVE_DASHES, CURVE_COLOURS)):
        dashed = {"custom.lineStyle": {"fill": "dash", "dash": list(dash)}} if dash else {}
        yield {"color": _fixed(colour), **dashed}


def _fixed(colour: str) -> Json:
    return {"mode": "fixed", "fixedColor": colour}


def shown(panel: Json, lines: Sequence[Line]) -> tuple[Line, ...]:
    """Return the lines of the signals that a panel shows, named after the curve too where names are alike."""
    curves = (query for query in panel["queries"] if "curve" in query)
    legends = {query["curve"]["signal"]: query["legend"] for query in reversed(list(curves))}
    found = [line for line in lines if line.signal in legends]
    alike = Counter((line.name, line.severity) for line in found)
    return tuple(
        replace(line, name=f"{line.name}, {legends[line.signal]}")
        if alike[line.name, line.severity] > 1
        else line
        for line in found
    )


def _limit(panel: Json, line: Line, dashboard: str, translate: Catalogue) -> Json:
    """A line with a name; where there are no lines, or none about this subject, a number."""
    drawn = panel["look"]["type"] == "timeseries" and line.dashboard == dashboard
    if not drawn and line.number is not None:
        return {"severity": line.severity, "value": line.number}
    expr = line.promql
    if drawn:
        curves = (query for query in panel["queries"] if query.get("curve", {}).get("signal") == line.signal)
        from_zero = panel.get("field", {}).get("min") == 0
        expr = _within_reach(expr, next(curves)["expr"].strip(), from_zero=from_zero)
    legend = translate("{alert} ({severity})", alert=line.name, severity=translate(line.severity))
    return {"severity": line.severity, "legend": legend, "expr": expr}


def _within_reach(limit: str, curve: str, *, from_zero: bool) -> str:
    """Return a limit where it is near the curve: one far away would flatten the curve to a straight line.

    Near is as far from the curve's extremes in the time on show as these are apart, and a third more. An axis
    from 0 shows what lies below the curve anyway: there one extreme is looked for, which costs a sixth.
    """
    low, high = (
        f"{extreme}({extreme}_over_time(({curve})[$__range:$__interval] @ end()))"
        for extreme in ("min", "max")
    )
    if from_zero:
        return f"({limit}) <= scalar(7 * {high} / 3)"
    below = f"scalar(2 * {low} - {high} - abs({low}) / 3)"
    above = f"scalar(2 * {high} - {low} + abs({high}) / 3)"
    return f"({limit}) <= {above} >= {below}"


def _dashed(limits: Iterable[Json]) -> Iterator[Json]:
    """Yield limits as dashed lines in the colour of their severity, with dashes of its own."""
    dashes = {severity: itertools.cycle(LIMIT_DASHES) for severity in SEVERITY_COLOURS}
    for limit in limits:
        style = {
            "color": _fixed(SEVERITY_COLOURS[limit["severity"]]),
            "custom.lineStyle": {"fill": "dash", "dash": list(next(dashes[limit["severity"]]))},
            "custom.lineWidth": 1,
            "custom.fillOpacity": 0,
        }
        yield {**limit, "as": style}


def _thresholds(limits: Iterable[Json]) -> Json:
    numbers = [limit for limit in limits if "value" in limit]
    steps = [
        {"color": SEVERITY_COLOURS[limit["severity"]], "value": limit["value"]}
        for limit in sorted(numbers, key=lambda limit: limit["value"])
    ]
    return {"mode": "absolute", "steps": [{"color": "green" if steps else "text", "value": None}, *steps]}


def _override(matcher: str, which: str, properties: Json) -> Json:
    return {
        "matcher": {"id": matcher, "options": which},
        "properties": [{"id": key, "value": value} for key, value in properties.items()],
    }


def _by_step(translate: Catalogue) -> list[Json]:
    """Turn two queries, of a signal (A) and the step (B) by run, into a column for each run, over steps."""
    matrix = {"columnField": "run", "rowField": "Value #B", "valueField": "Value #A", "emptyValue": "null"}
    number = {"targetField": BY_STEP, "destinationType": "number"}
    return [
        {"id": "merge", "options": {}},
        {"id": "groupingToMatrix", "options": matrix},
        {"id": "convertFieldType", "options": {"conversions": [number], "fields": {}}},
        {"id": "sortBy", "options": {"sort": [{"field": BY_STEP, "desc": False}]}},
        {
            "id": "organize",
            "options": {"excludeByName": {}, "indexByName": {}, "renameByName": {BY_STEP: translate("step")}},
        },
    ]


def _columns(columns: Json, queries: list[tuple[str, Json]], panel: Json) -> list[Json]:
    """Join a table's queries, by the label `join` or all they share; keep, order and name its columns.

    Rows that lack the column `require` are left out. The others are sorted by each column of `sort` in turn,
    so that the last counts most: in descending order, by `-name` in ascending order.

    Headings are given here, and columns known by them from then on: Grafana 10 shows none that an override
    gives once another override was matched with the column.
    """
    if not columns:
        return []
    several = len(queries) > 1
    values = {
        query["column"]: f"Value #{letter}" if several else "Value"  # Grafana's names of a query's value
        for letter, query in queries
        if "column" in query
    }
    headings = {values.get(name, name): _heading(columns, name) for name in columns}
    fields = list(headings)
    by_label = {"id": "joinByField", "options": {"byField": panel.get("join"), "mode": "outer"}}
    join = by_label if "join" in panel else {"id": "merge", "options": {}}
    keep = {"id": "filterFieldsByName", "options": {"include": {"names": fields}}}
    arrange = {
        "id": "organize",
        "options": {
            "excludeByName": {},
            "indexByName": {field: index for index, field in enumerate(fields)},
            "renameByName": {field: heading for field, heading in headings.items() if field != heading},
        },
    }
    made = [*([join] if several else []), keep, arrange]
    if require := panel.get("require"):
        present = {"fieldName": _heading(columns, require), "config": {"id": "isNotNull", "options": {}}}
        made.append(
            {"id": "filterByValue", "options": {"type": "include", "match": "all", "filters": [present]}}
        )
    for name in panel.get("sort", ()):
        by = {"field": _heading(columns, name.lstrip("-")), "desc": not name.startswith("-")}
        made.append({"id": "sortBy", "options": {"sort": [by]}})
    return made


def _heading(columns: Json, name: str) -> str:
    heading: str = columns.get(name, {}).get("displayName", name)
    return heading
