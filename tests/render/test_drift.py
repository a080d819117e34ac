"""Whether an edit of config.yaml is in force."""

from __future__ import annotations

import pytest

from stepwatch.config import Config
from stepwatch.config.deployment import OnThisMachine
from stepwatch.render import generator
from stepwatch.render.generator import generate, instead_of_usual, pending
from stepwatch.system.environment import CHECKOUT


@pytest.fixture(name="config")
def _config(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text("")
    generate(config, tmp_path, place=OnThisMachine)
    return config


def test_nothing_is_pending_after_rendering(config, tmp_path):
    assert pending(config, tmp_path, OnThisMachine) is None


def test_an_edit_that_was_not_rendered_is_reported(config, tmp_path):
    config.write_text("alerts: {GradNormHigh: {warning: {times_level: 3}}}")
    assert pending(config, tmp_path, OnThisMachine) == (
        f"config.yaml was changed since it was rendered: `make up CONFIG={config}` applies it."
    )


def test_an_edit_of_the_checkouts_own_file_needs_no_name_to_be_applied(tmp_path):
    reported = pending(CHECKOUT / "config.yaml", tmp_path, OnThisMachine)
    assert reported == "config.yaml was changed since it was rendered: `make up` applies it."


def test_another_file_than_the_checkouts_own_is_named(config):
    assert instead_of_usual(CHECKOUT / "config.yaml") is None
    assert instead_of_usual(config) == (
        f"{config} is in effect (from the last `make up CONFIG=file`); "
        f"edits of {CHECKOUT / 'config.yaml'} have no effect."
    )


def test_a_link_at_the_usual_place_is_the_usual_file(config, tmp_path, monkeypatch):
    link = tmp_path / "link.yaml"
    link.symlink_to(config)
    monkeypatch.setattr(generator, "CONFIG", link)

    assert instead_of_usual(link) is None


def test_an_edited_comment_is_not_pending(config, tmp_path):
    config.write_text("# nothing\n")
    assert pending(config, tmp_path, OnThisMachine) is None


def test_a_file_that_cannot_be_used_is_reported_with_the_reason(config, tmp_path):
    config.write_text("alerts: {GradNormHigh: {warning: lots}}")
    reported = pending(config, tmp_path, OnThisMachine)
    assert reported.startswith("config.yaml is invalid; the last rendered settings are in effect.\n")
    assert "alerts.GradNormHigh.warning" in reported


def test_which_parts_this_machine_has_is_not_an_edit(config, tmp_path):
    def another(settings: Config) -> OnThisMachine:
        return OnThisMachine(settings, frozenset({"node", "grafana"}))

    assert pending(config, tmp_path, another) is None
