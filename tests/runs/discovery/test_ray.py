"""Ray's own list of targets."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.discovery.target_sources import STALE_SECONDS, DamagedError, RayFiles, ray_addresses

NODE, DASHBOARD = "10.0.0.7:43517", "10.0.0.7:44227"


def content(*targets):
    """One line, as Ray writes it."""
    return json.dumps([{"labels": {"job": "ray"}, "targets": list(targets)}])


@pytest.fixture(name="folder")
def _folder(tmp_path):
    """Ray's folder: the list lies in that of the session, and a link with its whole path leads there."""
    session = tmp_path / "ray" / "session_1"
    session.mkdir(parents=True)
    (tmp_path / "ray" / "list.json").symlink_to(session / "list.json")
    return tmp_path / "ray"


@pytest.fixture(name="source")
def _source(folder, allowlist):
    return RayFiles([folder / "list.json"], allowlist, Path("/"))


def found(source, *, over=False):
    return [target.address for target in source.targets() if target.over == over]


def replaced(folder, text):
    """As Ray does it: a file beside it, and a renaming."""
    (folder / "session_1" / "tmp").write_text(text)
    (folder / "session_1" / "tmp").replace(folder / "session_1" / "list.json")


def test_the_list_is_followed_through_link_and_renaming(folder, source):
    replaced(folder, content(NODE))
    assert found(source) == [NODE]
    replaced(folder, content(NODE, DASHBOARD))
    targets = list(source.targets())

    assert [target.address for target in targets] == [NODE, DASHBOARD]
    assert all(target.labels == {"job": "ray", "role": "ray"} for target in targets)
    replaced(folder, content(DASHBOARD))
    assert (found(source), found(source, over=True)) == ([DASHBOARD], [])


def test_a_list_that_ray_has_ceased_to_write_is_over(folder, source):
    replaced(folder, content(NODE))
    assert found(source) == [NODE]
    os.utime(folder / "session_1" / "list.json", (time.time() - STALE_SECONDS - 1,) * 2)

    assert (found(source), found(source, over=True)) == ([], [NODE])
    replaced(folder, content(NODE))
    assert found(source) == [NODE]


def test_the_servers_of_a_session_that_was_removed_are_over(folder, source, allowlist):
    replaced(folder, content(NODE))
    found(source)
    (folder / "session_1" / "list.json").unlink()

    assert (found(source), found(source, over=True)) == ([], [NODE])
    assert allowlist.counts == {("ray_file", "gone"): 1}


@pytest.mark.parametrize(
    "broken",
    [
        "",
        "\n",
        "[",
        content(NODE)[:-1],
        "null",
        "{}x",
        '{"targets": ["10.0.0.7:1"]}',
        "[1]",
        "[null]",
        '[{"labels": {}}]',
        '[{"targets": null}]',
        '[{"targets": [7]}]',
        '[{"targets": "10.0.0.7:8080"}]',
        "[" * 100_000,
    ],
)
def test_the_last_good_answer_holds_while_the_list_is_broken(folder, source, allowlist, logged, broken):
    replaced(folder, content(NODE, DASHBOARD))
    found(source)
    replaced(folder, broken)

    assert [found(source), found(source)] == [[NODE, DASHBOARD]] * 2
    assert allowlist.counts == {("ray_file", "damaged"): 1}
    assert len(logged) == 1


def test_no_targets_are_none(folder, source, allowlist):
    replaced(folder, content(NODE))
    found(source)
    replaced(folder, "[]")

    assert found(source) == []
    assert not allowlist.counts


@given(st.binary(max_size=500), st.integers(0, 80), st.integers(0, 80))
def test_whatever_bytes_it_holds_they_are_addresses_or_damage(noise, start, end):
    whole = content(NODE, DASHBOARD).encode()
    try:
        listed = ray_addresses(whole[:start] + noise + whole[end:])
    except DamagedError:
        return
    assert all(isinstance(address, str) for address in listed)
