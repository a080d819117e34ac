"""`make agent`: only the password goes to standard output, and only its hash to the disk."""

from __future__ import annotations

import json
from pathlib import Path

import bcrypt
import pytest

from stepwatch.operate.hub import credential
from stepwatch.schema.errors import Refused


def run(
    tmp_path: Path, node: str | None, *, renew: bool = False, revoke: bool = False, role: str = "hub"
) -> int:
    config = tmp_path / "config.yaml"
    config.write_text(f"role: {role}\nports: {{prometheus: 1}}\n")
    return credential(config, tmp_path / "secrets" / "agents", node, renew=renew, revoke=revoke)


def users(tmp_path: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads((tmp_path / "secrets/agents/web.yml").read_text())["basic_auth_users"]
    return found


def test_a_password_is_printed_alone_and_its_hash_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(tmp_path, "node-7") == 0
    out, err = capsys.readouterr()
    password = out.removesuffix("\n")
    folder = tmp_path / "secrets/agents"
    assert len(password) == 43
    assert password not in err
    assert {file.name: file.stat().st_mode & 0o777 for file in folder.iterdir()} == {
        "web.yml": 0o640,
        "internal-password": 0o640,
    }
    # Without a user, Prometheus takes the requests of everyone: the hub's own is always there.
    known = {"node-7": password, "internal": (folder / "internal-password").read_text()}
    assert users(tmp_path).keys() == known.keys()
    assert all(bcrypt.checkpw(known[name].encode(), kept.encode()) for name, kept in users(tmp_path).items())


def test_a_password_is_replaced_on_request_alone_and_others_stay(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for node in ("node-7", "node-8"):
        run(tmp_path, node)
    before = users(tmp_path)
    with pytest.raises(Refused, match="RENEW=1"):
        run(tmp_path, "node-7")
    capsys.readouterr()
    run(tmp_path, "node-7", renew=True)
    password = capsys.readouterr().out.strip()
    assert {name for name, kept in users(tmp_path).items() if kept != before[name]} == {"node-7"}
    assert bcrypt.checkpw(password.encode(), users(tmp_path)["node-7"].encode())
    run(tmp_path, "node-7", revoke=True)
    assert users(tmp_path).keys() == {"internal", "node-8"}
    with pytest.raises(Refused, match="may not write"):
        run(tmp_path, "node-7", revoke=True)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a b", "x" * 64, "nöde", "a\n", "internal"])
def test_other_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(Refused, match="not the name of a node"):
        run(tmp_path, name)


def test_nodes_are_listed_and_a_damaged_file_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(tmp_path, None)
    assert "No node may write" in capsys.readouterr().err
    run(tmp_path, "node-7")
    capsys.readouterr()
    run(tmp_path, None)
    assert "node-7  unknown: the hub does not answer" in capsys.readouterr().err
    with pytest.raises(Refused, match="missing"):
        run(tmp_path, None, renew=True)
    (tmp_path / "secrets/agents/web.yml").write_text("{")
    with pytest.raises(Refused, match=r"web\.yml: cannot be read .* Fix: delete it"):
        run(tmp_path, None)


def test_a_machine_that_takes_nothing_from_agents_makes_no_password(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Refused, match="role: all: only a hub"):
        run(tmp_path, "node-7", role="all")

    assert capsys.readouterr().out == ""
    assert not (tmp_path / "secrets").exists()
