"""Draws docs/demo.svg: what the demo's runs did, and when an alert said so."""

from __future__ import annotations

import html
import json
import time
import urllib.parse
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measure import get

FILE = Path(__file__).resolve().parent.parent / "docs/demo.svg"

_COLUMNS, _WIDTH, _HEIGHT = 3, 300, 150
_LEFT, _TOP, _GAP = 12, 30, 16

_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.name { font-weight: 600 }
.what, .axis { fill: #656d76 }
.frame { fill: none; stroke: #d0d7de }
.curve { fill: none; stroke: #0969da; stroke-width: 1.5 }
.since { fill: #cf222e; fill-opacity: .1 }
.mark { stroke: #cf222e; stroke-width: 1.5 }
.alert { fill: #cf222e; font-weight: 600 }
.well { fill: #1a7f37; font-weight: 600 }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .what, .axis { fill: #9198a1 } .frame { stroke: #3d444d }
  .curve { stroke: #4493f8 } .mark { stroke: #f85149 }
  .since, .alert { fill: #f85149 } .well { fill: #3fb950 }
}
"""


@dataclass(frozen=True)
class Panel:
    """One curve: its query, and the alert that belongs to it, if any."""

    name: str
    what: str
    query: str
    alert: str = ""
    labels: str = ""


def _of_run(run: str, what: str, metric: str, alert: str = "") -> Panel:
    matcher = f'run="{run}"'
    return Panel(run, what, f"{metric}{{{matcher}}}", alert, matcher)


PANELS = (
    _of_run("demo/healthy", "reward", "rl_reward"),
    _of_run("demo/kl-explodes", "KL, nats/token", "rl_kl", "KLExplosion"),
    _of_run("demo/stagnates", "reward", "rl_reward", "RewardStagnation"),
    _of_run("demo/hangs", "step", "rl_step", "Stalled"),
    Panel(
        "GPU of a well card",
        "power, W",
        "max(gpu_power_watts and on (gpu, instance) sum by (gpu, instance) (gpu_xid_errors_total) == 0)",
    ),
    Panel("GPU of the sick card", "temperature, °C", 'max(gpu_temperature_celsius{sensor="gpu"})', "GPUXid"),
)


def draw(prometheus: str, begun: float) -> str:
    """The picture of the time from ``begun`` (Unix seconds) until now, from a Prometheus at this URL."""
    now = time.time()
    parts = [_panel(index, panel, prometheus, begun, now) for index, panel in enumerate(PANELS)]
    rows = -(-len(PANELS) // _COLUMNS)
    width = _LEFT * 2 + _COLUMNS * _WIDTH + (_COLUMNS - 1) * _GAP
    height = rows * (_HEIGHT + _TOP + 34)
    label = "Curves of the demo's runs and GPUs, with the moment at which each alert fired"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'role="img" aria-label="{label}"><style>'
        f"{_STYLE}</style>{''.join(parts)}</svg>\n"
    )


def _panel(index: int, panel: Panel, prometheus: str, begun: float, now: float) -> str:
    """A curve with its largest and smallest value, shaded since the alert, and when that came."""
    points = _series(prometheus, panel.query, begun, now)
    values = [value for _, value in points]
    low, high = min(values), max(values)
    span = high - low or 1
    fired = None
    if panel.alert:
        matchers = filter(None, [f'alertname="{panel.alert}"', 'alertstate="firing"', panel.labels])
        firing = _series(prometheus, f"max(ALERTS{{{','.join(matchers)}}})", begun, now)
        fired = firing[0][0] if firing else None

    def x(at: float) -> float:
        return _WIDTH * (at - begun) / (now - begun)

    path = "".join(
        f"{'L' if number else 'M'}{x(at):.1f} {_HEIGHT - 6 - (_HEIGHT - 12) * (value - low) / span:.1f}"
        for number, (at, value) in enumerate(points)
    )
    at, kind, word, since = now, "well", "no alert", ""
    if fired is not None:
        at, kind, word = fired, "alert", panel.alert
        since = (
            f'<rect class="since" x="{x(at):.1f}" width="{_WIDTH - x(at):.1f}" height="{_HEIGHT}"/>'
            f'<path class="mark" d="M{x(at):.1f} 0V{_HEIGHT}"/>'
        )
    left, top = _LEFT + index % _COLUMNS * (_WIDTH + _GAP), _TOP + index // _COLUMNS * (_HEIGHT + _TOP + 34)
    anchor = "end" if x(at) > 120 else "start"
    return (
        f'<g transform="translate({left} {top})">'
        f'<text y="-8"><tspan class="name">{html.escape(panel.name)}</tspan>'
        f'<tspan class="what" dx="6">{html.escape(panel.what)}</tspan></text>'
        f'<rect class="frame" width="{_WIDTH}" height="{_HEIGHT}"/>{since}<path class="curve" d="{path}"/>'
        f'<text class="axis" x="4" y="14">{low + span:.3g}</text>'
        f'<text class="axis" x="4" y="{_HEIGHT - 6}">{low:.3g}</text>'
        f'<text class="axis" y="{_HEIGHT + 15}">0:00</text>'
        f'<text class="{kind}" x="{x(at):.1f}" y="{_HEIGHT + 15}" text-anchor="{anchor}">'
        f"{word} {int(at - begun) // 60}:{int(at - begun) % 60:02}</text></g>"
    )


def _series(prometheus: str, query: str, begun: float, now: float) -> list[tuple[float, float]]:
    asked = urllib.parse.urlencode({"query": query, "start": begun, "end": now, "step": 1})
    result = json.loads(get(f"{prometheus}/api/v1/query_range?{asked}"))["data"]["result"]
    return [(at, float(value)) for at, value in result[0]["values"]] if result else []
