"""`python -m stepwatch mark`, sent to a real exporter."""

from __future__ import annotations

import pytest

from tests.operate.conftest import Site
from tests.real import free_port


def test_a_marked_run_is_rebaselined_from_its_next_step(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert site.run("mark", "ppo/gsm8k", "--note", "new data") == 0
    assert capsys.readouterr().out.startswith("Marked ppo/gsm8k: start, best, ")
    site.train("ppo/gsm8k", 21, 25)
    site.train("ppo/math", 21, 25)
    found = site.exporter.until(lambda page: page.value("rl_step", run="ppo/math") == 25)
    found = site.exporter.until(lambda page: page.value("rl_step", run="ppo/gsm8k") == 25)

    assert found.value("rl_run_mark_timestamp_seconds", run="ppo/gsm8k", note="new data") is not None
    assert found.value("rl_records_seen", run="ppo/gsm8k") == 5
    assert found.value("rl_records_seen", run="ppo/math") == 25


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("ppo/gsm",),
            "Nothing was marked. There is no run named ppo/gsm. Similar names: ppo/gsm8k, ",
        ),
        (("ppo/gsm8k", "--note", "a\nb"), "Nothing was marked. Invalid `note`. Expected: one line of "),
    ],
)
def test_what_cannot_be_marked_is_refused_in_one_line(
    site: Site, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert site.run("mark", *words) == 2
    error = capsys.readouterr().err
    assert error.startswith(said)
    assert error.count("\n") == 1


def test_without_an_exporter_it_says_so_and_the_fix(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    site.ports["exporter"] = free_port()
    site.write()

    assert site.run("mark", "ppo/gsm8k") == 2
    assert capsys.readouterr().err.startswith("The run exporter does not answer at http://127.0.0.1:")
