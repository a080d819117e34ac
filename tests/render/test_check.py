import pytest

from stepwatch.render.check import CheckError, check


@pytest.fixture(name="folders")
def _folders(tmp_path):
    """Rendered files of both services."""
    files = ["prometheus/prometheus.yml", "prometheus/rules/a.yml", "prometheus/rules/b.yml"]
    for name in [*files, "alertmanager/alertmanager.yml"]:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a: 1\n")
    return {service: tmp_path / service for service in ("prometheus", "alertmanager")}


@pytest.fixture(name="tools", autouse=True)
def _tools(tmp_path, monkeypatch):
    """Stand-ins that note how they are called; `tools["promtool"]("exit 1")` makes one fail."""

    def maker(name):
        path = tmp_path / name

        def make(body):
            path.write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/{name}.calls\n{body}\n')
            path.chmod(0o755)

        make("exit 0")
        monkeypatch.setenv(f"STEPWATCH_{name.upper()}", str(path))
        return make

    return {name: maker(name) for name in ("promtool", "amtool")}


def test_each_tool_judges_the_files_of_its_service(folders, tmp_path):
    lines = check(folders)

    assert lines == (
        f"{tmp_path}/promtool finds no fault in the files of prometheus.",
        f"{tmp_path}/amtool finds no fault in the files of alertmanager.",
    )
    assert (tmp_path / "promtool.calls").read_text().splitlines() == [
        f"check config --syntax-only {folders['prometheus']}/prometheus.yml",
        f"check rules {folders['prometheus']}/rules/a.yml {folders['prometheus']}/rules/b.yml",
    ]
    assert (tmp_path / "amtool.calls").read_text() == (
        f"check-config {folders['alertmanager']}/alertmanager.yml\n"
    )


def test_what_a_tool_says_is_passed_on_with_the_paths_that_the_user_knows(folders, tools):
    tools["promtool"](f'echo "{folders["prometheus"]}/rules/a.yml: 3: bad" >&2; exit 1')

    with pytest.raises(CheckError) as caught:
        check(folders)

    assert str(caught.value) == (
        "promtool refuses the files of prometheus; nothing was written. It says:\n"
        "prometheus/generated/rules/a.yml: 3: bad"
    )


def test_a_tool_that_is_not_there_is_said_in_a_line(folders, monkeypatch):
    monkeypatch.delenv("STEPWATCH_AMTOOL")
    monkeypatch.setattr("stepwatch.system.programs.find", lambda _: None)

    assert check(folders)[1] == "amtool was not found: the files of alertmanager are not checked."


def test_a_tool_that_is_named_but_does_not_run_is_refused(folders, monkeypatch):
    monkeypatch.setenv("STEPWATCH_AMTOOL", "/no/such/amtool")

    with pytest.raises(
        CheckError, match=r"amtool cannot be run .*/no/such/amtool.* Fix: .* STEPWATCH_AMTOOL"
    ):
        check(folders)


def test_a_tool_that_hangs_is_given_up(folders, tools, monkeypatch):
    tools["amtool"]("exec sleep 60")
    monkeypatch.setattr("stepwatch.render.check.TIMEOUT_SECONDS", 0.2)

    with pytest.raises(CheckError, match=r"amtool cannot be run .*timed out"):
        check(folders)
