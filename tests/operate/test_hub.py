"""`make agent`: only the token goes to standard output, and only its hash to the disk."""

from __future__ import annotations

import hashlib

import pytest

from exporter.door.agent_access import Credentials
from stepwatch.operate.hub import credential
from stepwatch.schema.errors import Refused


def run(tmp_path, node, *, renew=False, revoke=False, role="hub"):
    config = tmp_path / "config.yaml"
    config.write_text(f"role: {role}\nports: {{prometheus: 1}}\n")
    return credential(config, tmp_path / "secrets" / "agents", node, renew=renew, revoke=revoke)


def test_a_token_is_printed_alone_and_its_hash_is_kept(tmp_path, capsys):
    assert run(tmp_path, "node-7") == 0
    out, err = capsys.readouterr()
    token = out.removesuffix("\n")
    file = tmp_path / "secrets" / "agents" / "node-7"
    assert len(token) == 43
    assert file.read_text().strip() == hashlib.sha256(token.encode()).hexdigest()
    assert file.stat().st_mode & 0o777 == 0o640
    assert token not in err
    assert Credentials(file.parent).node(f"Bearer {token}") == "node-7"
    assert [each.name for each in file.parent.iterdir()] == ["node-7"]


def test_a_credential_is_replaced_on_request_alone_and_the_old_token_is_void(tmp_path, capsys):
    run(tmp_path, "node-7")
    first = capsys.readouterr().out.strip()
    with pytest.raises(Refused, match="RENEW=1"):
        run(tmp_path, "node-7")
    run(tmp_path, "node-7", renew=True)
    second = capsys.readouterr().out.strip()
    known = Credentials(tmp_path / "secrets" / "agents")
    assert (known.node(f"Bearer {first}"), known.node(f"Bearer {second}")) == (None, "node-7")
    run(tmp_path, "node-7", revoke=True)
    assert known.node(f"Bearer {second}") is None
    with pytest.raises(Refused, match="no such node"):
        run(tmp_path, "node-7", revoke=True)


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a b", "x" * 64, "nöde", "a\n", ".a"])
def test_other_names_are_refused(tmp_path, name):
    with pytest.raises(Refused, match="not the name of a node"):
        run(tmp_path, name)


def test_nodes_are_listed_with_what_is_known(tmp_path, capsys):
    run(tmp_path, None)
    assert "No node may write" in capsys.readouterr().err
    run(tmp_path, "node-7")
    (tmp_path / "secrets" / "agents" / "broken").write_text("x")
    capsys.readouterr()
    run(tmp_path, None)
    out, err = capsys.readouterr()
    assert out == ""
    assert "node-7  unknown: the hub does not answer" in err
    assert "broken  unusable file" in err
    with pytest.raises(Refused, match="missing"):
        run(tmp_path, None, renew=True)


def test_a_machine_that_takes_nothing_from_agents_makes_no_token(tmp_path, capsys):
    with pytest.raises(Refused, match="role: all: only a hub"):
        run(tmp_path, "node-7", role="all")

    assert capsys.readouterr().out == ""
    assert not (tmp_path / "secrets").exists()
