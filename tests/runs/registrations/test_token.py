"""The token that a client shows, and the file that it stands in."""

from __future__ import annotations

import base64
import os
from pathlib import Path

import pytest

from exporter.runs.discovery.registration_api import Token
from exporter.runs.discovery.registrations import RefusedError

SECRET = "open:sesame"


@pytest.fixture(name="file")
def _file(tmp_path: Path) -> Path:
    file = tmp_path / "token"
    file.write_text(f"{SECRET}\n")
    file.chmod(0o640)
    return file


def basic(text: str) -> dict[str, str]:
    return {"authorization": f"Basic {base64.b64encode(text.encode()).decode()}"}


@pytest.mark.parametrize(
    "headers",
    [{"authorization": f"Bearer {SECRET}"}, {"authorization": f"bearer  {SECRET}"}, basic(f"any:{SECRET}")],
)
def test_the_token_is_taken_as_bearer_and_as_password(file: Path, headers: dict[str, str]) -> None:
    Token(file).require(headers)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": SECRET},
        {"authorization": "Bearer"},
        {"authorization": "Bearer open"},
        {"authorization": f"Bearer {SECRET}s"},
        {"authorization": f"Digest {SECRET}"},
        {"authorization": "Basic ???"},
        {"authorization": "Basic ÿ"},
        {"authorization": "Bearer ÿ"},
        basic(SECRET),
        basic(f"{SECRET}:any"),
    ],
)
def test_anything_else_is_refused(file: Path, headers: dict[str, str]) -> None:
    with pytest.raises(RefusedError) as refused:
        Token(file).require(headers)

    assert refused.value.result == "token"
    assert refused.value.status == "401 Unauthorized"
    assert "sesame" not in str(refused.value)


def test_without_a_file_every_client_is_let_in() -> None:
    Token(None).require({})


def test_a_new_token_holds_at_once(file: Path) -> None:
    token = Token(file)
    file.write_text("another")

    token.require({"authorization": "Bearer another"})
    with pytest.raises(RefusedError):
        token.require({"authorization": f"Bearer {SECRET}"})


@pytest.mark.parametrize("content", [None, b"", b" \n", b"two words", b"\xff\xfe", b"x" * 10_000, b"a\nb"])
def test_a_file_without_a_token_lets_no_one_in_and_the_log_says_why_once(
    file: Path, content: bytes | None, logged: list[str]
) -> None:
    file.unlink()
    if content is not None:
        file.write_bytes(content)
        file.chmod(0o600)
    token = Token(file)
    with pytest.raises(RefusedError) as refused:
        token.require({"authorization": "Bearer "})

    assert refused.value.result == "token_file"
    assert str(file) not in str(refused.value)
    assert len(logged) == 1
    assert str(file) in logged[0]


def test_a_file_that_goes_is_reported_when_someone_registers(file: Path, logged: list[str]) -> None:
    token = Token(file)
    assert logged == []
    file.unlink()
    with pytest.raises(RefusedError):
        token.require({})

    assert "No such file" in logged[0]


def test_a_pipe_in_the_file_s_place_holds_no_one_up(file: Path, logged: list[str]) -> None:
    file.unlink()
    os.mkfifo(file)
    Token(file)

    assert "it is not a file" in logged[0]


def test_a_file_that_every_user_may_read_is_reported_with_the_fix(file: Path, logged: list[str]) -> None:
    file.chmod(0o644)
    token = Token(file)

    assert f"chmod o-rwx {file}" in logged[0]
    token.require({"authorization": f"Bearer {SECRET}"})
