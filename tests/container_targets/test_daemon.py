"""A daemon that is not there, may not be asked, or answers what no daemon answers."""

from __future__ import annotations

import gc
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest

from stepwatch.deploy import container_targets
from stepwatch.schema.errors import Refused
from stepwatch.system.environment import CHECKOUT

# Of a connection that fails, the SDK leaves the socket to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")

Serve = Callable[[bytes], None]
NOBODY = 65534


@pytest.fixture(autouse=True)
def _collected() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(name="listening")
def _listening(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A socket that DOCKER_HOST names, in a folder that everybody may enter."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        Path(folder).chmod(0o755)
        listening.bind(f"{folder}/docker.sock")
        listening.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/docker.sock")
        yield listening


@pytest.fixture(name="serve")
def _serve(listening: socket.socket) -> Serve:
    """Has the socket answer the next connection with these bytes."""

    def answer(text: bytes) -> None:
        connection, _ = listening.accept()
        with connection, suppress(ConnectionError):
            connection.recv(65536)
            connection.sendall(text)

    return lambda text: Thread(target=answer, args=(text,), daemon=True).start()


@pytest.mark.parametrize(
    ("host", "said", "fix"),
    [
        (
            "unix:///nowhere/docker.sock",
            "at unix:///nowhere/docker.sock: No such file or directory.",
            "start Docker",
        ),
        ("tcp://127.0.0.1:1", "at tcp://127.0.0.1:1: Connection refused.", "start Docker"),
        ("pigeon://here", "at pigeon://here: Invalid bind address protocol", "`docker version`"),
    ],
)
def test_without_a_daemon_one_line_says_where_why_and_the_fix(host: str, said: str, fix: str) -> None:
    command = [sys.executable, CHECKOUT / "generate.py", "--discover", "docker"]
    done = subprocess.run(
        command, env={**os.environ, "DOCKER_HOST": host}, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert f"No Docker daemon answers {said}" in done.stderr
    assert fix in done.stderr
    assert done.stderr.endswith("Nothing was changed.\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_user_without_rights_on_the_socket_gets_that_reason(listening: socket.socket) -> None:
    Path(listening.getsockname()).chmod(0o600)
    import docker  # noqa: F401, PLC0415  it may lie where only root may look

    os.seteuid(NOBODY)
    try:
        with pytest.raises(
            Refused, match=r"docker\.sock: Permission denied\. .* of the group that the socket"
        ):
            container_targets.ask()
    finally:
        os.seteuid(0)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 5\r\n\r\nbroke",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n<html>no!",
        b'HTTP/1.1 200 OK\r\nContent-Length: 20\r\n\r\n{"ApiVersion": "0.9"',
    ],
)
def test_what_is_not_a_daemon_is_refused_in_words(serve: Serve, text: bytes) -> None:
    serve(text)

    with pytest.raises(
        Refused, match=r"No Docker daemon answers at unix://.*Nothing was changed\.$"
    ) as refused:
        container_targets.ask()

    assert "\n" not in str(refused.value)


def test_a_daemon_that_hangs_is_waited_for_a_while_only(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_targets, "_ANSWER_SECONDS", 0.3)

    with pytest.raises(Refused, match=r"timed out.* see whether `docker version` answers"):
        container_targets.ask()


def test_a_login_in_docker_host_is_never_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://me:hunter2@127.0.0.1:1")

    with pytest.raises(Refused) as refused:
        container_targets.ask()

    assert "hunter2" not in str(refused.value)
