"""What Prometheus gets: alerts, what promtool says of them, and jobs."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import yaml

from tests.parity.product import NEWEST, OLDEST, rendered
from tests.real.tools import prometheus

EVERYTHING = """
cluster: {role: hub}
"""


def _groups() -> Iterator[tuple[str, dict[str, Any]]]:
    for file in sorted(rendered().glob("prometheus/generated/rules/*.yml")):
        for group in yaml.safe_load(file.read_text())["groups"]:
            yield file.name, group


def alerts() -> Iterator[str]:
    """Each alert: severity, topic, how long it is pending and held, and how often it is evaluated."""
    lines = []
    for _, group in _groups():
        for rule in group["rules"]:
            if "alert" in rule:
                times = [str(rule.get(key, "-")) for key in ("for", "keep_firing_for")]
                labels = sorted(f"{key}={value}" for key, value in rule.get("labels", {}).items())
                notes = sorted(rule["annotations"])
                words = [rule["alert"], *labels, *times, str(group.get("interval", "-")), *notes]
                lines.append(" ".join(words))
    yield "# alert, labels, for, keep_firing_for, interval, annotations"
    yield from sorted(lines)


def verdicts() -> Iterator[str]:
    """Rules of each group, and whether both versions of promtool accept them."""
    for file, group in _groups():
        kinds = [("alerts" if "alert" in rule else "records") for rule in group["rules"]]
        yield f"{file} {group['name']}: {kinds.count('alerts')} alerts, {kinds.count('records')} records"
    for version in (OLDEST, NEWEST):
        for what, place in (("rules", "rules/*.yml"), ("config", "prometheus.yml")):
            files = sorted(rendered().glob(f"prometheus/generated/{place}"))
            # Passwords and certificates are where containers have them.
            check = ["check", what, *(["--syntax-only"] if what == "config" else [])]
            done = subprocess.run(
                [prometheus(version).tool, *check, *files], capture_output=True, text=True, check=False
            )
            yield f"promtool {version} check {what}: {done.returncode}"
            yield from (
                f"  {line}" for line in done.stderr.splitlines() if "FAILED" in line or "error" in line
            )


def jobs() -> Iterator[str]:
    """What Prometheus scrapes: jobs with intervals and limits, and the targets of files."""
    folder = rendered() / "prometheus" / "generated"
    document = yaml.safe_load((folder / "prometheus.yml").read_text())
    for job in document["scrape_configs"]:
        path = job.get("metrics_path", "/metrics")
        limit = job.get("sample_limit", "-")
        yield f"{job['job_name']}: {path}, each {job.get('scrape_interval', 'default')}, {limit} samples"
        for kind in ("file_sd_configs", "http_sd_configs", "dns_sd_configs", "static_configs"):
            for each in job.get(kind, ()):
                yield f"  {kind}: {each.get('url') or each.get('files') or each.get('names') or each}"
    for file in sorted(folder.glob("targets/*.yml")):
        groups = yaml.safe_load(file.read_text()) or []
        yield f"targets/{file.name}: {[target for group in groups for target in group['targets']]}"
    times = sorted(f"{key} {value}" for key, value in document["global"].items())
    yield f"global: {', '.join(times)}"
