"""The file that verl rewrites, in every state that it may be found in."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.discovery.target_sources import MOST_FILES, DamagedError, VerlFiles, verl_addresses
from tests.real.waiting import eventually

RAY_JOB = {
    "job_name": "ray",
    "file_sd_configs": [{"files": ["/tmp/ray/prom_metrics_service_discovery.json"]}],
}
USUAL = {"scrape_interval": "10s", "evaluation_interval": "10s"}


def content(*servers, jobs=(RAY_JOB,)):
    """What verl writes for these servers: PyYAML's block style, indented by two."""
    rollout = {"job_name": "rollout", "static_configs": [{"targets": list(servers)}]}
    document = {"global": USUAL, "scrape_configs": [*jobs, rollout]}
    return yaml.dump(document, default_flow_style=False, indent=2)


A, B, C = "10.0.0.7:41233", "10.0.0.8:40001", "[fd00::9]:42000"


@pytest.fixture(name="file")
def _file(tmp_path):
    return tmp_path / "prometheus.yml"


@pytest.fixture(name="found")
def _found(file, allowlist):
    """The addresses of one look, and of those that are over."""
    source = VerlFiles([str(file)], allowlist, Path("/"))

    def found(*, over=False):
        return {target.address for target in source.targets() if target.over == over}

    found.source = source
    return found


def test_the_servers_of_verls_job_are_targets_with_its_role(file, found, write):
    write(file, content(A, B, C))

    targets = list(found.source.targets())

    assert [target.address for target in targets] == [A, B, C]
    assert {(target.source, target.path, target.over) for target in targets} == {
        ("verl_file", "/metrics", False)
    }
    assert all(target.labels == {"job": "rollout", "role": "rollout"} for target in targets)
    assert time.time() - found.source.read < 10


def test_rays_own_file_at_that_path_names_no_rollout_servers_and_is_not_a_fault(
    file, found, write, allowlist
):
    write(file, yaml.dump({"global": USUAL, "scrape_configs": [RAY_JOB]}))

    assert found() == set()
    assert not allowlist.counts
    assert found.source.read is not None


@pytest.mark.parametrize(
    "text",
    [
        "- a\n- b\n",
        "text\n",
        "scrape_configs: none\n",
        "scrape_configs:\n  rollout: [x]\n",
        "scrape_configs:\n- job_name: rollout\n",
        "scrape_configs:\n- job_name: [rollout]\n  static_configs: {targets: ['10.0.0.7:1']}\n",
        "scrape_configs:\n- job_name: rollout\n  static_configs: [{labels: {targets: '10.0.0.7:1'}}]\n",
        "other:\n- job_name: rollout\n  static_configs: [{targets: ['10.0.0.7:1']}]\n",
        "? [complex, {key: 1}]\n: value\n",
        "a: !!python/object/apply:os.system [x]\n",
        "--- 1\n--- 2\n",
    ],
)
def test_other_yaml_names_no_servers(text):
    assert verl_addresses(text.encode()) == []


def test_a_file_that_changes_while_it_is_read_waits_for_the_next_look(file, found, write, monkeypatch):
    write(file, content(A))
    status_of = Path.stat

    def too_early(path, **more):
        status = status_of(path, **more)
        write(file, content(A, B)) if path == file else None
        return status

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", too_early)
        assert found() == set()
    assert found() == {A, B}


def test_a_second_runs_file_leaves_the_first_runs_servers_until_they_are_gone(file, found, write):
    write(file, content(A, B))
    found()
    write(file, content(B, C))

    assert found() == {B, C}
    assert found(over=True) == {A}
    write(file, content(A))
    assert (found(), found(over=True)) == ({A}, {B, C})


@pytest.mark.parametrize(
    "broken",
    [
        "",
        content(A, B)[:-3],
        "scrape_configs: [\n",
        "a: &a [*a]\nb: {\n",
        b"\xff\x00\n",
        "[" * 100_000 + "\n",
        "- " * 100_000 + "a\n",
    ],
)
def test_the_last_good_answer_holds_while_the_file_is_broken(file, found, write, allowlist, broken):
    write(file, content(A, B))
    found()
    write(file, broken)

    assert [found(), found()] == [{A, B}] * 2
    assert allowlist.counts == {("verl_file", "damaged"): 1}
    write(file, content(C))
    assert found() == {C}


def test_a_huge_file_is_not_read_and_reported_once(file, found, write, allowlist, logged):
    write(file, content(A))
    found()
    write(file, "x" * (1 << 20) + "\n")

    assert [found(), found()] == [{A}] * 2
    assert allowlist.counts == {("verl_file", "too_large"): 1}
    assert logged == [f"verl_file: {file} has more than 1048576 bytes."]


def test_what_is_being_written_waits_until_it_has_settled(file, found, write):
    write(file, content(A))
    found()
    file.write_text(content(B))

    assert found() == {A}
    os.utime(file, (time.time() - 10,) * 2)
    assert found() == {B}


def test_aliases_multiply_nothing(file, found, write, allowlist):
    bomb = "a: &a [x, x]\n" + "".join(f"b{n}: &b{n} [*a, *a, *a]\n" for n in range(9))
    write(file, bomb + content(A))

    assert found() == {A}
    assert not allowlist.counts


def test_a_file_that_is_replaced_a_link_that_dangles_and_a_file_that_is_gone(
    file, found, write, allowlist, tmp_path
):
    write(tmp_path / "one", content(A))
    file.symlink_to(tmp_path / "one")
    assert found() == {A}

    write(tmp_path / "two", content(B))
    (tmp_path / "two").replace(tmp_path / "one")
    assert (found(), found(over=True)) == ({B}, {A})

    (tmp_path / "one").unlink()
    assert (found(), found(over=True)) == (set(), {A, B})
    assert allowlist.counts == {("verl_file", "gone"): 1}

    write(tmp_path / "one", content(C))
    assert found() == {C}


def test_a_file_that_was_never_there_is_not_a_fault(found, allowlist):
    assert found() == set()
    assert not allowlist.counts
    assert found.source.read is None


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_not_a_file_is_not_opened(file, found, allowlist, make):
    make(file)

    assert found() == set()
    assert allowlist.counts == {("verl_file", "unreadable"): 1}


def test_addresses_that_are_not_allowed_are_left_out_counted_and_reported_once(
    file, found, write, allowlist, logged
):
    for _ in range(2):
        write(file, content(A, "8.8.8.8:80", "node-1:80", "http://10.0.0.1:80"))
        os.utime(file, (time.time() - 10 - _,) * 2)
        assert found() == {A}

    assert allowlist.counts == {("verl_file", "address"): 6}
    assert len(logged) == 3


def test_a_list_without_end_is_cut(file, found, write, allowlist):
    write(file, content(*(f"10.0.{n // 250}.{n % 250}:80" for n in range(6000))))

    eventually(lambda: len(found()) == 5000)  # a busy machine takes longer than a file system may
    assert allowlist.counts == {("verl_file", "too_many"): 1}


def test_a_pattern_leads_to_all_its_files_up_to_a_bound(tmp_path, write, allowlist):
    for number in range(MOST_FILES + 2):
        write(tmp_path / f"{number:03}.yml", content(f"10.0.0.1:{number + 1}"))
    source = VerlFiles([str(tmp_path / "*.yml"), str(tmp_path / "000.yml")], allowlist, Path("/"))

    for _ in range(2):
        assert len(list(source.targets())) == MOST_FILES
    assert allowlist.counts == {("verl_file", "too_many"): 2}


def test_files_that_are_gone_make_room_when_there_is_need_the_oldest_first(tmp_path, write, allowlist):
    source = VerlFiles([str(tmp_path / "*.yml"), str(tmp_path / "single")], allowlist, Path("/"))
    for number in range(MOST_FILES + 2):
        path = tmp_path / f"{number:03}.yml"
        write(path, content(f"10.0.0.1:{number + 1}"))
        assert f"10.0.0.1:{number + 1}" in {target.address for target in source.targets() if not target.over}
        path.unlink()

    kept = {target.address for target in source.targets()}
    assert kept == {f"10.0.0.1:{number + 1}" for number in range(3, MOST_FILES + 2)}
    assert set(allowlist.counts) == {("verl_file", "gone")}
    write(tmp_path / "single", content(A))
    assert A in {target.address for target in source.targets()}


def test_every_beginning_of_a_file_is_whole_or_damaged():
    whole = content(A, B, C).encode()

    for end in range(len(whole)):
        try:
            found = verl_addresses(whole[:end])
        except DamagedError:
            continue
        assert set(found) <= {A, B, C}


@given(st.binary(max_size=2000), st.integers(0, 400), st.integers(0, 400))
def test_whatever_bytes_it_holds_they_are_addresses_or_damage(noise, start, end):
    whole = content(A, B, C).encode()
    try:
        found = verl_addresses(whole[:start] + noise + whole[end:])
    except DamagedError:
        return
    assert all(isinstance(address, str) for address in found)
