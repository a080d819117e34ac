"""Containers where Docker answers, plain processes elsewhere; with the reason in words."""

from __future__ import annotations

import pytest

from stepwatch.deploy import backend
from stepwatch.deploy.compose import Containers
from stepwatch.deploy.native import service
from stepwatch.deploy.native.commands import Processes
from stepwatch.deploy.native.state import State
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import CHECKOUT

DOCKER = """#!/bin/sh
case "$1 $2" in
  "version "*) [ {daemon} = yes ] && echo 25.0.3 ;;
  "compose version") [ -n "{compose}" ] && echo "{compose}" ;;
  "inspect "*) echo '[]' ;;
  *) [ {stack} = yes ] && echo '{container}' ;;
esac
"""
CONTAINER = '{"Service": "gpu", "ID": "1", "State": "running", "Health": "", "ExitCode": 0, "Status": "Up"}'


@pytest.fixture(name="docker")
def _docker(tmp_path, monkeypatch):
    """Puts a docker on PATH that answers as asked; none at all if not called."""
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder))

    def answer(*, daemon="yes", compose="5.4.0", stack="no"):
        program = folder / "docker"
        program.write_text(DOCKER.format(daemon=daemon, compose=compose, stack=stack, container=CONTAINER))
        program.chmod(0o755)

    return answer


@pytest.fixture(name="place")
def _place(tmp_path):
    return State(tmp_path / "state")


def started(place, *, native=False):
    said = []
    return backend.to_start(CHECKOUT / "config.yaml", place, said.append, native=native), said


def test_containers_where_docker_answers(docker, place):
    docker()
    assert isinstance(started(place)[0], Containers)


def test_a_unit_of_systemd_is_refused_for_containers(docker, place):
    docker()
    with pytest.raises(Refused, match=r"SERVICE=1: .*Fix: omit SERVICE=1.*or add NATIVE=1"):
        backend.to_start(CHECKOUT / "config.yaml", place, print, native=False, as_service=True)


def test_plain_processes_where_a_unit_runs_them(docker, place, monkeypatch, tmp_path):
    docker()
    monkeypatch.setattr(service, "path", lambda: tmp_path / "stepwatch.service")
    assert isinstance(started(place)[0], Containers)

    service.path().write_text(service.unit(place))

    assert isinstance(started(place)[0], Processes)


def test_plain_processes_if_asked_for(docker, place):
    docker()
    stack, said = started(place, native=True)
    assert isinstance(stack, Processes)
    assert said == []


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        (None, "docker is not on PATH"),
        ({"daemon": "no"}, "no Docker daemon answers"),
        ({"compose": ""}, "docker has no Compose plugin (docker-compose v1 does not work)"),
        ({"compose": "v2.3.3"}, "Docker Compose is v2.3.3; needed: 2.20"),
    ],
)
def test_plain_processes_elsewhere_and_the_reason_is_reported(docker, place, answers, reason):
    if answers is not None:
        docker(**answers)
    stack, said = started(place)
    assert isinstance(stack, Processes)
    assert said == [f"Plain processes, not containers: {reason}."]


def test_other_commands_are_about_what_runs(docker, place):
    docker(stack="yes")
    assert isinstance(backend.running(CHECKOUT / "config.yaml", place, print), Containers)
    docker(stack="no")
    assert isinstance(backend.running(CHECKOUT / "config.yaml", place, print), Processes)


def test_a_running_stack_of_processes_stays_one(docker, place, monkeypatch):
    docker(stack="yes")
    monkeypatch.setattr(backend.Processes, "exists", True)
    assert isinstance(started(place)[0], Processes)
    assert isinstance(backend.running(CHECKOUT / "config.yaml", place, print), Processes)
