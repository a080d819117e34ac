"""The two users of Prometheus and Alertmanager, and the files that hold their passwords."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from exporter import credentials
from tests.credentials.conftest import Site
from tests.real.asking import ask
from tests.real.credentials import login

PATHS = (
    "/",
    "/-/ready",
    "/-/reload",
    "/metrics",
    "/api/v2/silences",
    "/api/v1/query?query=1",
    "/api/v1/write",
)


def made(folder: Path) -> dict[str, str]:
    """Make credentials in a folder; returns what each file holds."""
    assert credentials.main([str(folder / "people"), str(folder / "run")]) == 0
    return {file.name: file.read_text() for file in (folder / "people", *(folder / "run").iterdir())}


@pytest.mark.parametrize("headers", [{}, {"Authorization": "Basic c3RlcHdhdGNoOg=="}])
def test_every_page_asks_for_a_password_and_shows_itself_in_no_frame(
    site: Site, headers: dict[str, str]
) -> None:
    for server in (site.prometheus, site.alertmanager):
        for path in PATHS:
            for method in ("GET", "POST", "OPTIONS"):
                refused = ask(f"127.0.0.1:{server.port}", path, method, **headers)
                assert refused.status == 401
                assert refused.headers["X-Frame-Options"] == "deny"
                assert refused.headers["Content-Security-Policy"] == "frame-ancestors 'none'"


@pytest.mark.parametrize("user", [credentials.PEOPLE, credentials.INTERNAL])
def test_both_users_sign_in_with_their_own_password_alone(site: Site, user: str) -> None:
    other = {credentials.PEOPLE: credentials.INTERNAL, credentials.INTERNAL: credentials.PEOPLE}[user]
    password = (
        site.access / ("password" if user == credentials.PEOPLE else credentials.PASSWORD)
    ).read_text()
    for server in (site.prometheus, site.alertmanager):
        address = f"127.0.0.1:{server.port}"
        answer = ask(address, "/-/ready", **login(site.access, user))
        assert (answer.status, answer.headers["X-Frame-Options"]) == (200, "deny")
        assert (
            ask(address, "/-/ready", Authorization=credentials.authorization(password, other)).status == 401
        )


def test_a_new_password_of_people_is_in_force_at_once(site: Site) -> None:
    file, address = site.access / "password", f"127.0.0.1:{site.alertmanager.port}"
    before = login(site.access, credentials.PEOPLE)
    file.write_text("another one\n")
    credentials.make(file, site.access, mode=0o600)

    after = {"Authorization": credentials.authorization("another one", credentials.PEOPLE)}
    assert [ask(address, "/-/ready", **each).status for each in (before, after)] == [401, 200]
    assert ask(address, "/-/ready", **login(site.access)).status == 200


def test_they_are_made_once_and_only_people_are_told_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = made(tmp_path)
    said = capsys.readouterr().out

    assert (len(files["people"]), len(files["internal-password"])) == (24, 43)
    assert f"exec grafana cat {tmp_path / 'people'}" in said
    assert files["people"] not in said
    assert "internal" not in said.replace(str(tmp_path), "")
    assert made(tmp_path) == files
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "run").iterdir()} == {0o644}
    assert not [name for name, text in files.items() if name[-4:] == ".yml" and files["people"] in text]
    assert set(files) == {"people", "internal-password", "web.yml", "client.yml"}


@pytest.mark.parametrize("left", ["", "{", "{}", '{"basic_auth_users": {"stepwatch": "x", "internal": "y"}}'])
def test_damaged_and_lost_files_are_made_again_with_the_same_passwords(tmp_path: Path, left: str) -> None:
    files = made(tmp_path)
    (tmp_path / "run/web.yml").write_text(left)
    (tmp_path / "run/.web.yml.new").write_text("half")
    (tmp_path / "run/client.yml").unlink()

    again = made(tmp_path)

    assert {**again, "web.yml": ""} == {**files, "web.yml": ""}
    web = json.loads(again["web.yml"])
    assert web["basic_auth_users"].keys() == {"stepwatch", "internal"}
    assert web["http_server_config"]["headers"] == credentials.HEADERS


def test_an_empty_file_of_a_password_gets_a_new_one(tmp_path: Path) -> None:
    files = made(tmp_path)
    (tmp_path / "run/internal-password").write_text("")

    again = made(tmp_path)

    assert len(again["internal-password"]) == 43
    assert again["people"] == files["people"]
    assert again["web.yml"] != files["web.yml"]
