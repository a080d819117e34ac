"""Links of the machine around a container are followed as they are meant there."""

from __future__ import annotations

import pytest

from exporter.runs.discovery.target_sources import real_path


@pytest.fixture(name="host")
def _host(tmp_path):
    """A file system seen below a folder: /tmp/ray with two sessions, and links as Ray makes them."""
    ray = tmp_path / "host" / "tmp" / "ray"
    (ray / "session_2" / "metrics").mkdir(parents=True)
    (ray / "session_2" / "metrics" / "a").write_text("2")
    (ray / "session_latest").symlink_to("/tmp/ray/session_2")
    (ray / "relative").symlink_to("session_latest/metrics")
    (ray / "up").symlink_to("../ray/./session_2/metrics/a")
    (ray / "circle").symlink_to("/tmp/ray/circle")
    (ray / "nowhere").symlink_to("/tmp/other/a")
    (ray / "out").symlink_to("../../../../etc/passwd")
    return tmp_path / "host"


@pytest.mark.parametrize(
    ("path", "real"),
    [
        ("session_2/metrics/a", "session_2/metrics/a"),
        ("session_latest/metrics/a", "session_2/metrics/a"),
        ("relative/a", "session_2/metrics/a"),
        ("up", "session_2/metrics/a"),
        ("session_latest/../session_2", "session_2"),
        ("missing/a", "missing/a"),
    ],
)
def test_links_lead_where_they_lead_there(host, path, real):
    ray = host / "tmp" / "ray"

    assert real_path(ray / path, host) == ray / real


def test_nothing_leads_out_of_it_and_circles_end(host):
    ray = host / "tmp" / "ray"

    assert real_path(ray / "out", host) == host / "etc" / "passwd"
    assert real_path(ray / "nowhere", host) == host / "tmp" / "other" / "a"
    assert real_path(ray / "circle", host).is_relative_to(host)


def test_a_path_elsewhere_stays_as_it_is(host, tmp_path):
    (tmp_path / "link").symlink_to(host)

    assert real_path(tmp_path / "link" / "a", host) == tmp_path / "link" / "a"
