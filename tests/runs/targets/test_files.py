"""Ray's list and verl's prometheus.yml, in every state that they may be found in."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.targets import files
from exporter.runs.targets.files import DamagedError, ray_addresses, real_path, verl_addresses
from tests.runs.served import Serve, Served

A, B, C = "10.0.0.7:41233", "10.0.0.8:40001", "[fd00::9]:42000"
RAY_JOB = {"job_name": "ray", "file_sd_configs": [{"files": ["/tmp/ray/list.json"]}]}


def verl(*servers: str) -> str:
    """What verl writes for these servers: PyYAML's block style, indented by two."""
    jobs = [RAY_JOB, {"job_name": "rollout", "static_configs": [{"targets": [*servers]}]}]
    document = {"global": {"scrape_interval": "10s"}, "scrape_configs": jobs}
    return yaml.dump(document, default_flow_style=False, indent=2)


def ray(*servers: str) -> str:
    """One line, as Ray writes it."""
    return json.dumps([{"labels": {"job": "ray"}, "targets": servers}])


class Lists:
    """Ray's folder as Ray makes it, with links of whole paths into a session, and an exporter beside it."""

    def __init__(self, serve: Serve, folder: Path, write: Callable[[Path, str | bytes], None]) -> None:
        self.session, self.write = folder / "ray [1]" / "session_1", write
        self.verl = self.session / "metrics" / "prometheus" / "prometheus.yml"
        self.ray = self.session / "list.json"
        self.verl.parent.mkdir(parents=True)
        (self.session.parent / "session_latest").symlink_to(self.session)
        (self.session.parent / files.RAY_FILE).symlink_to(self.ray)
        self.served: Served = serve("--discovery-ray", self.session.parent)

    def replace_ray(self, text: str | bytes) -> None:
        """As Ray does it: a file beside it, and a renaming."""
        (self.session / "tmp").write_bytes(text if isinstance(text, bytes) else text.encode())
        (self.session / "tmp").replace(self.ray)

    def faults(self, **counts: int) -> None:
        """Wait until these are counted, and see that they stay so few."""
        wanted = {tuple(name.split("__")): count for name, count in counts.items()}
        self.served.until(lambda: self.served.errors() == wanted)
        time.sleep(0.1)
        assert self.served.errors() == wanted


@pytest.fixture(name="lists")
def _lists(serve: Serve, tmp_path: Path, write: Callable[[Path, str | bytes], None]) -> Lists:
    return Lists(serve, tmp_path, write)


def test_both_are_followed_through_links_and_renamings_and_have_their_roles(lists: Lists) -> None:
    assert lists.served.listed() == {}
    assert lists.served.errors() == {}  # a file that was never there is no fault
    lists.write(lists.verl, verl(A, C))
    lists.replace_ray(ray(B))
    lists.served.lists(A, B, C)
    rollout, node = {"job": "rollout", "role": "rollout"}, {"job": "ray", "role": "ray"}
    assert lists.served.listed() == {A: rollout, C: rollout, B: node}
    lists.replace_ray(ray("10.0.0.9:1"))
    lists.write(lists.verl.with_name("new"), verl(A))
    lists.verl.with_name("new").replace(lists.verl)
    lists.served.lists(A, "10.0.0.9:1")


BROKEN = {
    "verl": (
        *("", verl(A, B)[:-3], "scrape_configs: [\n", "a: &a [*a]\nb: {\n", b"\xff\x00\n"),
        *("[" * 100_000 + "\n", "- " * 100_000 + "a\n"),
    ),
    "ray": (
        *(
            "",
            "\n",
            ray(A)[:-1],
            "{}x",
            "null",
            "[" * 100_000,
            '{"targets": ["10.0.0.7:1"]}',
            "[1]",
            "[null]",
        ),
        *('[{"labels": {}}]', '[{"targets": null}]', '[{"targets": [7]}]', '[{"targets": "10.0.0.7:1"}]'),
    ),
}


@pytest.mark.parametrize("kind", ["verl", "ray"])
def test_the_last_good_content_holds_while_a_file_is_broken(lists: Lists, kind: str) -> None:
    def write(content: str | bytes) -> None:
        if kind == "ray":
            lists.replace_ray(content)
        else:  # replaced, since a file that is emptied has its old time for a moment
            lists.write(lists.session / "new", content)
            (lists.session / "new").replace(lists.verl)

    good = verl if kind == "verl" else ray
    for number, broken in enumerate(BROKEN[kind], 1):
        write(good(A, B))
        lists.served.lists(A, B)
        write(broken)
        lists.faults(**{f"damaged__{kind}_file": number})
        assert lists.served.listed().keys() == {A, B}, broken[:50]
    write(good(C))
    lists.served.lists(C)


@pytest.mark.parametrize(
    "text",
    [
        *("- a\n- b\n", "text\n", "scrape_configs: none\n", "scrape_configs:\n  rollout: [x]\n"),
        "scrape_configs:\n- job_name: rollout\n",
        "scrape_configs:\n- job_name: [rollout]\n  static_configs: {targets: ['10.0.0.7:1']}\n",
        "scrape_configs:\n- job_name: rollout\n  static_configs: [{labels: {targets: '10.0.0.7:1'}}]\n",
        "other:\n- job_name: rollout\n  static_configs: [{targets: ['10.0.0.7:1']}]\n",
        *("? [complex, {key: 1}]\n: value\n", "a: !!python/object/apply:os.system [x]\n", "--- 1\n--- 2\n"),
        yaml.dump({"scrape_configs": [RAY_JOB]}),
    ],
)
def test_other_yaml_such_as_rays_own_file_names_no_servers_and_is_no_fault(text: str) -> None:
    assert verl_addresses(text.encode()) == []


def test_aliases_multiply_nothing() -> None:
    bomb = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a, *a]\n" for n in range(9))
    assert verl_addresses((bomb + verl(A)).encode()) == [A]


@given(st.binary(max_size=2000), st.integers(0, 400), st.integers(0, 400))
def test_whatever_bytes_they_hold_they_are_addresses_or_damage(noise: bytes, start: int, end: int) -> None:
    beginning = verl(A, B, C).encode()[:start]
    with suppress(DamagedError):
        assert set(verl_addresses(beginning)) <= {A, B, C}
    for parse, whole in ((verl_addresses, verl(A, B, C)), (ray_addresses, ray(A, B))):
        with suppress(DamagedError):
            found = parse(whole.encode()[:start] + noise + whole.encode()[end:])
            assert all(isinstance(address, str) for address in found)


def test_verls_file_counts_once_it_has_not_changed_for_a_while(lists: Lists) -> None:
    lists.write(lists.verl, verl(A))
    lists.served.lists(A)
    lists.verl.write_text(verl(B))
    time.sleep(0.3)
    lists.served.lists(A)
    os.utime(lists.verl, (time.time() - 10,) * 2)
    lists.served.lists(B)


def test_a_file_that_changes_while_it_is_read_waits_for_the_next_look(
    lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    fstat = os.fstat

    def grown(number: int) -> os.stat_result:
        monkeypatch.setattr(files.os, "fstat", fstat)
        lists.write(lists.verl, verl(A, B))
        return fstat(number)

    lists.write(lists.verl.with_name("new"), verl(C))
    monkeypatch.setattr(files.os, "fstat", grown)
    lists.verl.with_name("new").replace(lists.verl)
    lists.served.lists(A, B)
    assert lists.served.errors("stepwatch_discovery_targets") == {("verl_file", "served"): 2}


def test_a_huge_file_is_not_read_and_what_is_no_file_is_not_opened(lists: Lists, logged: list[str]) -> None:
    lists.write(lists.verl, verl(A))
    lists.served.lists(A)
    lists.write(lists.session / "huge", "x" * (1 << 20) + "\n")
    (lists.session / "huge").replace(lists.verl)  # at once: what is seen half written is another file
    lists.faults(too_large__verl_file=1)
    os.mkfifo(lists.session / "pipe")
    (lists.session / "pipe").replace(lists.verl)
    lists.faults(too_large__verl_file=1, unreadable__verl_file=1)
    lists.served.lists(A)
    assert [words.partition("prometheus.yml ")[2] for words in logged] == [
        "has more than 1048576 bytes.",
        "is not a file.",
    ]


def test_a_list_that_ray_no_longer_writes_is_over_and_its_dead_parts_leave(lists: Lists) -> None:
    lists.replace_ray(ray("127.0.0.1:1", A))
    lists.served.lists("127.0.0.1:1", A)
    os.utime(lists.ray, (time.time() - 61,) * 2)
    lists.served.lists()
    lists.replace_ray(ray(A))
    lists.served.lists(A)
    lists.ray.unlink()
    lists.served.lists()
    lists.faults(gone__ray_file=1)


def test_a_pattern_leads_to_all_its_files_up_to_a_bound_and_what_is_gone_makes_room(
    serve: Serve, tmp_path: Path, lists: Lists, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MOST_FILES", 5)
    for number in range(7):
        lists.write(tmp_path / f"{number}.yml", verl(f"10.0.0.1:{number + 1}"))
    served = serve("--discovery-files", json.dumps([str(tmp_path / "*.yml"), str(tmp_path / "0.yml")]))
    served.lists(*(f"10.0.0.1:{number}" for number in range(1, 6)))
    assert served.errors() == {("too_many", "verl_file"): 2}
    (tmp_path / "0.yml").unlink()
    (tmp_path / "1.yml").unlink()
    served.until(lambda: {"10.0.0.1:6"} <= served.listed().keys())


LINKS = {
    "session_latest": "/tmp/ray/session_2",
    "relative": "session_latest/metrics",
    "up": "../ray/./session_2/metrics/a",
    "circle": "/tmp/ray/circle",
    "nowhere": "/tmp/other/a",
    "out": "../../../../etc/passwd",
}
REAL = {
    "session_2/metrics/a": "tmp/ray/session_2/metrics/a",
    "session_latest/metrics/a": "tmp/ray/session_2/metrics/a",
    "relative/a": "tmp/ray/session_2/metrics/a",
    "up": "tmp/ray/session_2/metrics/a",
    "session_latest/../session_2": "tmp/ray/session_2",
    "missing/a": "tmp/ray/missing/a",
    "out": "etc/passwd",
    "nowhere": "tmp/other/a",
    "circle": "tmp/ray/circle",
}


def test_links_lead_where_they_lead_on_the_machine_around_a_container(tmp_path: Path) -> None:
    host, links = tmp_path / "host", tmp_path / "host" / "tmp" / "ray"
    (links / "session_2" / "metrics").mkdir(parents=True)
    (links / "session_2" / "metrics" / "a").write_text("2")
    for name, to in LINKS.items():
        (links / name).symlink_to(to)
    assert {path: real_path(links / path, host) for path in REAL} == {k: host / v for k, v in REAL.items()}
    (tmp_path / "link").symlink_to(host)
    assert real_path(tmp_path / "link" / "a", host) == tmp_path / "link" / "a"
