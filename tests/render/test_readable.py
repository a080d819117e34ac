"""What a container may read of a mounted folder, by owner and mode."""

from __future__ import annotations

import os
import re

import pytest

from stepwatch.config.deployment import CONTAINER_USER, InContainers, require
from stepwatch.render.templates import render
from stepwatch.schema.errors import Refused


@pytest.fixture(name="folder")
def _folder(tmp_path):
    folder = tmp_path / "secrets"
    (folder / "team").mkdir(parents=True)
    (folder / "team").chmod(0o755)
    folder.chmod(0o755)
    (folder / "team/token").write_text("s3cret")
    return folder


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o440, 0o044])
def test_a_file_that_others_or_the_group_of_the_folder_may_read_is_fine(folder, mode):
    token = folder / "team/token"
    token.chmod(mode)

    require(token, folder)


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o200, 0o604, 0o700])
def test_a_file_that_the_group_may_not_read_is_refused_with_the_command(folder, mode):
    # The group is asked before others: 604 keeps it out.
    token = folder / "team/token"
    token.chmod(mode)

    with pytest.raises(Refused) as caught:
        require(token, folder)

    group = folder.stat().st_gid
    assert str(caught.value) == (
        f"{token}: mode {mode:o} does not let the containers read it. "
        f"Expected: that group {group} may. Fix: chmod 640 {token}"
    )


def test_the_group_may_be_another_than_the_folders(folder, monkeypatch):
    (folder / "team/token").chmod(0o640)
    other = folder.stat().st_gid + 1
    monkeypatch.setenv("STEPWATCH_SECRETS_GROUP", str(other))

    with pytest.raises(Refused, match=f"Expected: that group {other} may. Fix: chgrp {other} "):
        require(folder / "team/token", folder)


@pytest.mark.parametrize("which", ["", "team"])
def test_a_folder_on_the_way_must_be_open_too(folder, which):
    (folder / which).chmod(0o700)

    with pytest.raises(
        Refused, match=rf"{folder / which}: mode 700 .* search it.* chmod 750 {folder / which}$"
    ):
        require(folder / "team/token", folder)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_whose_file_it_is_decides_which_bits_count(folder):
    token = folder / "team/token"
    token.chmod(0o640)
    os.chown(token, -1, 12345)
    with pytest.raises(Refused, match=rf"Fix: chgrp {folder.stat().st_gid} {token} && chmod 640 {token}$"):
        require(token, folder)

    os.chown(token, CONTAINER_USER, -1)
    require(token, folder)
    token.chmod(0o044)
    with pytest.raises(Refused):
        require(token, folder)

    os.chown(token, 0, CONTAINER_USER)
    token.chmod(0o040)
    require(token, folder)


def test_a_link_within_the_folder_is_followed_and_one_out_of_it_refused(folder, tmp_path):
    containers = InContainers({folder: "/etc/stepwatch/secrets"})
    (folder / "here").symlink_to(folder / "team/token")
    assert containers.file(folder / "here") == "/etc/stepwatch/secrets/team/token"

    (tmp_path / "elsewhere").write_text("s3cret")
    (folder / "there").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match=re.escape(f"{folder}/there: leads to {tmp_path}/elsewhere, which no")):
        containers.file(folder / "there")
    with pytest.raises(Refused, match="which no container sees"):
        containers.file(folder / "../elsewhere")


def test_a_list_of_targets_may_be_still_to_come(folder):
    assert InContainers({folder: "/t"}).file(folder / "*.json") == "/t/*.json"


def test_a_refusal_is_reported_as_it_is_and_not_as_a_fault_of_the_template(folder, tmp_path):
    (folder / "team/token").chmod(0o600)
    template = tmp_path / "alertmanager/templates/a.yml.j2"
    template.parent.mkdir(parents=True)
    template.write_text("file: <%= deployment.file(path) %>\n")

    with pytest.raises(Refused) as caught:
        render(tmp_path, {"deployment": InContainers({folder: "/etc"}), "path": folder / "team/token"})

    assert str(caught.value).startswith(f"{folder}/team/token: mode 600")
    assert "template" not in str(caught.value)
