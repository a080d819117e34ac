"""What `make` says when a variable is missing."""

from __future__ import annotations

import os
import subprocess

import pytest

from stepwatch.system.environment import CHECKOUT


@pytest.mark.parametrize(
    ("words", "usage", "example"),
    [
        (["silence"], "make silence RUN=name", "make silence RUN=ppo/gsm8k FOR=2h"),
        (["silence", "RUN="], "make silence RUN=name", "make silence RUN=ppo/gsm8k FOR=2h"),
        (["mark"], "make mark RUN=name", "make mark RUN=ppo/gsm8k NOTE='new data'"),
        (["evidence"], "make evidence RUN=name", "make evidence RUN=ppo/gsm8k"),
        (["tensorboard"], "make tensorboard TO=folder", "make tensorboard TO=./tensorboard"),
        (["test-alert"], "make test-alert TO=receiver", "make test-alert TO=chat"),
    ],
)
def test_a_target_without_its_variable_prints_its_usage_in_one_line_with_an_example(
    words: list[str], usage: str, example: str
) -> None:
    # As a user runs it, not as a part of `make test`.
    environment = {name: text for name, text in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    ran = subprocess.run(
        ["make", "PY=false", "PYTHON=true", *words],
        cwd=CHECKOUT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert ran.returncode == 2
    assert not ran.stdout
    (line,) = ran.stderr.splitlines()
    assert f"Usage: {usage}" in line
    assert f"Example: {example}" in line
