"""The command line as users meet it, on small templates and on the real ones."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from stepwatch import generate as command
from stepwatch.config.deployment import OnThisMachine
from stepwatch.generate import main
from stepwatch.render import generator
from stepwatch.render.generator import generate, stale
from tests.real import tools as real

CHECKOUT = Path(__file__).parents[2]
EXPORTERS = [f"exporter/generated/{name}.json" for name in ("evidence", "gpu", "runs")]
TEMPLATES = {
    "prometheus/templates/prometheus.yml.j2": "interval: <%= config.intervals.runs %>\n",
    "prometheus/templates/rules/rl.yml.j2": "above: <%= config.alerts.GradNormHigh.warning.times_level %>\n",
    "alertmanager/templates/alertmanager.yml.j2": "wait: <%= config.notify.critical.group_wait %>\n",
}


@pytest.fixture(name="site")
def _site(tmp_path, monkeypatch):
    """A checkout with small templates; `main` takes it for its own."""
    for name, text in {**TEMPLATES, "config.yaml": ""}.items():
        path = tmp_path / "site" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for tool in ("promtool", "amtool"):
        monkeypatch.setenv(f"STEPWATCH_{tool.upper()}", "/bin/true")
    for module in (command, generator):
        monkeypatch.setattr(module, "CHECKOUT", tmp_path / "site")
    monkeypatch.setattr(generator.alerting, "files", lambda *_: {})
    return tmp_path / "site"


@pytest.fixture(name="run")
def _run(site):
    return lambda *arguments: main(["--config", str(site / "config.yaml"), "--out", str(site), *arguments])


def generated(out):
    """Every generated file with its bytes and the time it was written."""
    return {
        str(path.relative_to(out)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(out.glob("*/generated/**/*"))
        if path.is_file()
    }


def test_files_are_rendered_and_what_changed_is_reported(site, run, capsys):
    assert run() == 0
    assert capsys.readouterr().out.splitlines() == [
        "new alertmanager/generated/alertmanager.yml",
        *(f"new {path}" for path in EXPORTERS),
        "new prometheus/generated/prometheus.yml",
        "new prometheus/generated/rules/rl.yml",
        "/bin/true finds no fault in the files of prometheus.",
        "/bin/true finds no fault in the files of alertmanager.",
        "6 files, 6 changed.",
    ]
    assert (site / "prometheus/generated/rules/rl.yml").read_text().endswith("\nabove: 4\n")


def test_a_second_time_changes_nothing(site, run, capsys):
    run()
    before = generated(site)
    capsys.readouterr()

    assert run() == 0
    assert generated(site) == before
    assert capsys.readouterr().out.endswith("6 files, all up to date.\n")


def test_an_edit_changes_only_the_files_that_it_concerns(site, run, capsys):
    run()
    before = generated(site)
    capsys.readouterr()
    (site / "config.yaml").write_text("alerts: {GradNormHigh: {warning: {times_level: 6}}}")

    assert run() == 0
    concerned = ["exporter/generated/evidence.json", "prometheus/generated/rules/rl.yml"]
    assert capsys.readouterr().out.splitlines()[:2] == [f"changed {name}" for name in concerned]
    assert {name for name, file in generated(site).items() if before[name] != file} == set(concerned)


def test_check_names_each_stale_file_and_writes_nothing(site, run, capsys):
    run()
    (site / "config.yaml").write_text("alerts: {GradNormHigh: {warning: {times_level: 6}}}")
    (site / "prometheus/generated/prometheus.yml").unlink()
    (site / "prometheus/generated/rules/old.yml").write_text("mine")
    before = generated(site)
    capsys.readouterr()

    assert run("--check") == 1
    assert capsys.readouterr().out.splitlines() == [
        "different exporter/generated/evidence.json",
        "missing prometheus/generated/prometheus.yml",
        "orphan prometheus/generated/rules/old.yml",
        "different prometheus/generated/rules/rl.yml",
        "The files above are stale. Fix: run python generate.py.",
    ]
    assert generated(site) == before


def test_a_fault_in_one_service_keeps_the_files_of_all(site, run, capsys):
    run()
    before = generated(site)
    (site / "config.yaml").write_text("intervals: {runs: 7s}")
    (site / "prometheus/templates/rules/rl.yml.j2").write_text("<%= nope %>")
    (site / "alertmanager/templates/alertmanager.yml.j2").write_text("wait: 1\n")

    assert run() == 2
    assert "prometheus/templates/rules/rl.yml.j2:1: 'nope' is undefined" in capsys.readouterr().err
    assert generated(site) == before


def test_what_a_tool_refuses_is_not_written(site, run, capsys, monkeypatch):
    run()
    before = generated(site)
    monkeypatch.setenv("STEPWATCH_AMTOOL", "/bin/false")
    (site / "config.yaml").write_text("intervals: {runs: 7s}")

    assert run() == 2
    assert "amtool refuses the files of alertmanager; nothing was written." in capsys.readouterr().err
    assert generated(site) == before
    assert not list(site.rglob(".generated-*"))


def test_many_changes_are_reported_in_few_lines(site, run, capsys):
    for number in range(40):
        (site / f"prometheus/templates/{number}.yml.j2").write_text("a: 1\n")

    assert run() == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[12] == "... and 34 more"
    assert len(lines) == 16


def test_a_place_that_cannot_be_written_is_refused_in_words(site, capsys):
    assert main(["--config", str(site / "config.yaml"), "--out", str(site / "config.yaml")]) == 2
    assert "Expected: a folder for generated files." in capsys.readouterr().err


@pytest.mark.parametrize(("prometheus", "alertmanager"), [("2.42", "0.25"), ("3.13", "0.31")])
def test_everything_configurable_is_accepted_by_the_real_tools(
    tmp_path, monkeypatch, prometheus, alertmanager
):
    monkeypatch.setenv("STEPWATCH_PROMTOOL", str(real.prometheus(prometheus).tool))
    monkeypatch.setenv("STEPWATCH_AMTOOL", str(real.alertmanager(alertmanager).tool))
    (tmp_path / "token").write_text("x")
    (tmp_path / "config.yaml").write_text(
        "scrape:\n"
        '  - {job: "a b", role: gpu, targets: ["h:1", "[::1]:2"], labels: {rack: "r$1 \\" é"}, scheme: https,'
        " interval: 1m, metrics_path: /m, bearer_token_file: token}\n"
        "  - {job: sd, files: [sd/*.json], labels: {rack: $1}}\n"
        "receivers:\n"
        '  - {name: "on call", webhook: {url: "http://127.0.0.1:1/x?a=b", credentials_file: token}}\n'
        "overrides:\n"
        '  - {runs: "a.[!b]*|$", alerts: {KL: {warning: {above: 15}}, Reward: {critical: null}}}\n'
        "  - {runs: b, alerts: {KL: {enabled: false}, Stalled: {silence: 1h}}}\n"
    )

    outcome = generate(tmp_path / "config.yaml", tmp_path / "out", place=OnThisMachine)

    assert [line.split()[1:4] for line in outcome.checks] == [["finds", "no", "fault"]] * 2
    config = tmp_path / "out/prometheus/generated/prometheus.yml"
    tool = [os.environ["STEPWATCH_PROMTOOL"], "check", "config", str(config)]
    assert subprocess.run(tool, capture_output=True, check=False).returncode == 0


def test_a_reader_that_has_read_enough_ends_it_without_a_traceback(tmp_path):
    (tmp_path / "config.yaml").write_text("{}\n")
    reading, writing = os.pipe()
    os.close(reading)
    env = {**os.environ, "STEPWATCH_PROMTOOL": "/bin/true", "STEPWATCH_AMTOOL": "/bin/true"}
    command = [
        sys.executable,
        CHECKOUT / "generate.py",
        "--config",
        tmp_path / "config.yaml",
        "--out",
        tmp_path,
    ]
    done = subprocess.run(command, env=env, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)

    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "prometheus/generated/prometheus.yml").is_file()


def shim(*arguments, python=sys.executable, **options):
    return subprocess.run(
        [python, *options.pop("flags", []), CHECKOUT / "generate.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
        **options,
    )


def test_the_script_works_from_any_folder(tmp_path):
    (tmp_path / "config.yaml").write_text("nonsense: 1")

    done = shim("--config", "config.yaml", "--out", "out", cwd=tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith("config.yaml:1: nonsense: unknown key.")
    assert done.stdout == ""


KILLED = """
import os, runpy, signal, sys
moves = 0
def hook(event, arguments):
    global moves
    if event == "os.rename" and "/generated/" in str(arguments[1]):
        moves += 1
        if moves == 2:
            os.kill(os.getpid(), signal.SIGKILL)
sys.addaudithook(hook)
sys.argv = sys.argv[1:]
sys.path.insert(0, os.path.dirname(sys.argv[0]))
runpy.run_path(sys.argv[0], run_name="__main__")
"""

MANY_CHANGES = "intervals: {scrape: 7s}\nruns: {raw: {limit: 41}}\nalerts: {Watchdog: {enabled: false}}\n"


def test_what_a_killed_script_left_half_done_the_next_completes(tmp_path):
    config, out = tmp_path / "config.yaml", tmp_path / "out"
    tools = {**os.environ, "STEPWATCH_PROMTOOL": "/bin/true", "STEPWATCH_AMTOOL": "/bin/true"}
    arguments = ["--config", str(config), "--out", str(out)]
    config.write_text("")
    shim(*arguments, env=tools)
    config.write_text(MANY_CHANGES)
    killed = [sys.executable, "-c", KILLED, str(CHECKOUT / "generate.py"), *arguments]
    assert subprocess.run(killed, env=tools, check=False).returncode == -signal.SIGKILL
    assert shim(*arguments, "--check", env=tools).returncode == 1
    assert shim(*arguments, env=tools).returncode == 0
    assert shim(*arguments, "--check", env=tools).returncode == 0


def test_the_script_without_its_packages_names_the_fix(tmp_path):
    shutil.copy(CHECKOUT / "generate.py", tmp_path)

    done = subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "generate.py"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert done.stderr.startswith("generate.py: ")
    assert "Fix: run `make generate`, which sets up .venv." in done.stderr
    assert "Traceback" not in done.stderr


def test_the_script_finds_the_packages_in_the_venv_of_the_checkout(tmp_path):
    shutil.copy(CHECKOUT / "generate.py", tmp_path)
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "called with $@"\n')
    python.chmod(python.stat().st_mode | stat.S_IXUSR)

    done = subprocess.run(
        [sys.executable, "-I", "-S", tmp_path / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.stdout == f"called with {tmp_path}/generate.py --check\n"


def test_what_is_committed_is_what_the_defaults_render():
    assert list(stale(CHECKOUT / "config.yaml", CHECKOUT)) == []
