"""Errors are shown without secrets, in one line."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwatch.operate.test_alert import redacted

URL = "https://hooks.chat.example/services/T0/B0/s3cretpart"


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (f'Post "{URL}": refused', 'Post "(secret)": refused'),
        ("404: no route /services/T0/B0/s3cretpart", "404: no route (secret)"),
        ("unknown token s3cretpart", "unknown token (secret)"),
        ("lookup hooks.chat.example: no such host", "lookup hooks.chat.example: no such host"),
        ("T0 is gone.\n", "T0 is gone"),
        ("", "no reason given"),
        (" \n.", "no reason given"),
        ("a\x1b[31mb\nc", "a [31mb c"),
    ],
)
def test_the_parts_of_a_secret_url_are_not_shown(tmp_path, error, shown):
    (tmp_path / "url").write_text(f"{URL}\n")

    assert redacted(error, [tmp_path / "url"]) == shown


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(before=st.text(), after=st.text())
def test_a_password_is_never_shown_and_a_line_is_one(tmp_path, before, after):
    (tmp_path / "password").write_text("hunter2")

    said = redacted(f"{before}hunter2{after}", [tmp_path / "password"])

    assert "hunter2" not in said
    assert said.isprintable()
    assert 0 < len(said) <= 400


def test_a_file_that_is_gone_by_now_hides_nothing(tmp_path):
    assert redacted("no such file", [tmp_path / "gone"]) == "no such file"
