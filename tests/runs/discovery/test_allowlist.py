"""What goes wrong in finding servers is counted, and reported once."""

from __future__ import annotations

from exporter.runs.discovery.address import Allowlist
from exporter.runs.files import notice


def test_a_flood_of_one_kind_hides_no_other_kind_and_no_source(
    allowlist: Allowlist, logged: list[str]
) -> None:
    allowlist.passed("verl_file", "/x", [f"8.8.{n // 250}.{n % 250}:80" for n in range(1200)])
    assert len(logged) == notice.MOST_HOURLY
    allowlist.note("verl_file", "damaged", "/x is not valid YAML")
    allowlist.note("ray_file", "address", "/y: 8.8.8.8:80")

    assert logged[notice.MOST_HOURLY :] == ["verl_file: /x is not valid YAML.", "ray_file: /y: 8.8.8.8:80."]
    assert allowlist.counts["verl_file", "address"] == 1200
