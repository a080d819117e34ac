"""Draws docs/demo.svg: what the demo's runs did, and when an alert said so."""

from __future__ import annotations

import html
import json
import time
import urllib.parse
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

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


PANELS = (
    Panel("demo/healthy", "reward", 'rl_reward{run="demo/healthy"}'),
    Panel(
        "demo/kl-explodes",
        "KL, nats/token",
        'rl_kl{run="demo/kl-explodes"}',
        "KLExplosion",
        'run="demo/kl-explodes"',
    ),
    Panel(
        "demo/stagnates",
        "reward",
        'rl_reward{run="demo/stagnates"}',
        "RewardStagnation",
        'run="demo/stagnates"',
    ),
    Panel("demo/hangs", "step", 'rl_step{run="demo/hangs"}', "Stalled", 'run="demo/hangs"'),
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
    x = _LEFT + index % _COLUMNS * (_WIDTH + _GAP)
    y = _TOP + index // _COLUMNS * (_HEIGHT + _TOP + 34)
    points = _series(prometheus, panel.query, begun, now)
    fired = _fired(prometheus, panel, begun, now)
    return (
        f'<g transform="translate({x} {y})">{_title(panel)}'
        f'<rect class="frame" width="{_WIDTH}" height="{_HEIGHT}"/>{_since(fired, begun, now)}'
        f'<path class="curve" d="{_path(points, begun, now)}"/>{_axis(points)}'
        f"{_caption(panel, fired, begun, now)}</g>"
    )


def _title(panel: Panel) -> str:
    name = f'<text y="-8"><tspan class="name">{html.escape(panel.name)}</tspan>'
    return f'{name}<tspan class="what" dx="6">{html.escape(panel.what)}</tspan></text>'


def _since(fired: float | None, begun: float, now: float) -> str:
    if fired is None:
        return ""
    x = _WIDTH * (fired - begun) / (now - begun)
    return (
        f'<rect class="since" x="{x:.1f}" width="{_WIDTH - x:.1f}" height="{_HEIGHT}"/>'
        f'<path class="mark" d="M{x:.1f} 0V{_HEIGHT}"/>'
    )


def _path(points: Sequence[tuple[float, float]], begun: float, now: float) -> str:
    low, high = _bounds(points)
    return "".join(
        f"{'L' if index else 'M'}{_WIDTH * (at - begun) / (now - begun):.1f} "
        f"{_HEIGHT - 6 - (_HEIGHT - 12) * (value - low) / (high - low):.1f}"
        for index, (at, value) in enumerate(points)
    )


def _axis(points: Sequence[tuple[float, float]]) -> str:
    low, high = _bounds(points)
    return (
        f'<text class="axis" x="4" y="14">{high:.3g}</text>'
        f'<text class="axis" x="4" y="{_HEIGHT - 6}">{low:.3g}</text>'
        f'<text class="axis" y="{_HEIGHT + 15}">0:00</text>'
    )


def _caption(panel: Panel, fired: float | None, begun: float, now: float) -> str:
    """What the time axis says: when the alert came, or that none did."""
    at, kind, word = (now, "well", "no alert") if fired is None else (fired, "alert", panel.alert)
    x = _WIDTH * (at - begun) / (now - begun)
    return (
        f'<text class="{kind}" x="{x:.1f}" y="{_HEIGHT + 15}" text-anchor="{"end" if x > 120 else "start"}">'
        f"{word} {_clock(at - begun)}</text>"
    )


def _bounds(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    values = [value for _, value in points]
    low, high = min(values), max(values)
    return (low, high) if high > low else (low, low + 1)


def _clock(seconds: float) -> str:
    return f"{int(seconds // 60)}:{int(seconds % 60):02}"


def _fired(prometheus: str, panel: Panel, begun: float, now: float) -> float | None:
    if not panel.alert:
        return None
    matchers = ",".join(filter(None, [f'alertname="{panel.alert}"', 'alertstate="firing"', panel.labels]))
    points = _series(prometheus, f"max(ALERTS{{{matchers}}})", begun, now)
    return points[0][0] if points else None


def _series(prometheus: str, query: str, begun: float, now: float) -> list[tuple[float, float]]:
    asked = urllib.parse.urlencode({"query": query, "start": begun, "end": now, "step": 1})
    with urllib.request.urlopen(f"{prometheus}/api/v1/query_range?{asked}", timeout=30) as answer:
        result = json.load(answer)["data"]["result"]
    return [(at, float(value)) for at, value in result[0]["values"]] if result else []
