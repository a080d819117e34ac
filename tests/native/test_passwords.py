"""Old Alertmanagers take what stands around a password for a part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from stepwatch.config import load
from stepwatch.deploy.native.installed import require_bare
from stepwatch.deploy.native.state import StackError
from stepwatch.system.programs import Program

OLD, NEW = Program(Path("alertmanager"), (0, 26, 0)), Program(Path("alertmanager"), (0, 27, 0))


@pytest.fixture(name="config")
def _config(tmp_path):
    def loaded(password):
        (tmp_path / "password").write_text(password)
        (tmp_path / "config.yaml").write_text(
            "receivers:\n- {name: hook, webhook: {url: 'http://h/'}}\n"
            "- {name: open, mail: {to: [a@b], from: a@b, smarthost: 'h:25'}}\n"
            "- {name: team, mail: {to: [a@b], from: a@b, smarthost: 'h:25', username: u,"
            " password_file: password}}\n"
        )
        return load(tmp_path / "config.yaml")

    return loaded


@pytest.mark.parametrize("password", ["hunter2\n", " hunter2"])
def test_a_line_end_is_refused_for_those_who_would_send_it(config, tmp_path, password):
    with pytest.raises(StackError) as caught:
        require_bare(config(password), OLD)

    assert str(caught.value).startswith(
        f"receivers: team: mail.password_file: {tmp_path}/password ends with a newline or a space, and "
        "Alertmanager 0.26.0 takes that as part of the password."
    )
    assert "hunter2" not in str(caught.value)
    require_bare(config(password), NEW)


def test_a_password_alone_is_fine_for_all(config):
    require_bare(config("hunter two"), OLD)
