"""What callers of commands rely on: exit codes, and what is written and said."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.own_logs import HEALTHY, SICK, TRL
from tests.parity.product import command, programs, rendered, scrubbed, stepwatch


def generate() -> Iterator[str]:
    """generate.py: 0 done, 1 stale, 2 refused; all files, or none."""
    with TemporaryDirectory(prefix="stepwatch-parity-") as scratch:
        folder = Path(scratch)
        config, out = folder / "config.yaml", folder / "out"

        def run(*words: str, settings: str = "") -> str:
            config.write_text(settings)
            before = _contents(out)
            done = command("generate.py", "--config", config, "--out", out, *words)
            after = _contents(out)
            touched = "all" if not before and after else "some" if before != after else "nothing"
            said = f"says {bool(done.stdout)}, errs {bool(done.stderr)}"
            return f"exits {done.returncode}, writes {touched}, {said}"

        yield f"check of nothing: {run('--check')}"
        yield f"first time: {run()}"
        yield f"check of current files: {run('--check')}"
        yield f"a change: {run(settings='intervals: {scrape: 30s}')}"
        yield f"unknown key: {run(settings='nonsense: 1')}"
        yield f"wrong value: {run(settings='intervals: {scrape: soon}')}"
        yield f"no YAML: {run(settings='a: [')}"
        yield f"a fault in one service only: {run(settings=FAULT)}"
        yield f"unknown flag: {run('--nonsense')}"
        target = sorted(out.glob("prometheus/generated/rules/*.yml"))[0]
        target.write_text("edited")
        yield f"check after an edit: {run('--check', settings='intervals: {scrape: 30s}')}"
        (out / "prometheus/generated/rules/old.yml").write_text("groups: []\n")
        yield f"an edit and a left file go: {run(settings='intervals: {scrape: 30s}')}"
        done = command("generate.py", "--config", folder / "none.yaml", "--out", out)
        yield f"no file: exits {done.returncode}"
        config.write_text("intervals: {scrape: soon}\n")
        done = command("generate.py", "--config", config, "--out", out)
        yield from (f"said of a wrong value: {line}" for line in scrubbed(done.stderr, folder).splitlines())
    yield f"committed files are current: exits {command('generate.py', '--check').returncode}"


FAULT = "receivers: [{name: a, webhook: {url: 'http://127.0.0.1:9/a'}, runs: ['(']}, {name: a}]"


def files() -> Iterator[str]:
    """The files that generate.py makes."""
    folder = rendered()
    yield from sorted(str(file.relative_to(folder)) for file in folder.rglob("*") if file.is_file())


def commands() -> Iterator[str]:
    """Exit codes of commands, and their first words."""
    cases = {
        "version": ("-m", "stepwatch", "--version"),
        "no command": ("-m", "stepwatch"),
        "unknown command": ("-m", "stepwatch", "nonsense"),
        "inspect of nothing": ("-m", "stepwatch", "inspect", "/nowhere"),
        "inspect of a log": ("-m", "stepwatch", "inspect", str(SICK)),
        "backtest of nothing": ("-m", "stepwatch", "backtest", "/nowhere"),
        "config": ("-m", "stepwatch", "config"),
        "config of a key": ("-m", "stepwatch", "config", "--explain", "alerts.KL"),
        "config of no key": ("-m", "stepwatch", "config", "--explain", "alerts.Nonsense"),
        "alerts": ("-m", "stepwatch", "alerts"),
        "run exporter, unknown flag": ("-m", "exporter.runs", "--nonsense"),
        "run exporter, bad port": ("-m", "exporter.runs", "--path", "/nowhere", "--port", "none"),
        "GPU exporter, unknown flag": ("-m", "exporter.gpu", "--nonsense"),
        "GPU exporter, bad port": ("-m", "exporter.gpu", "--port", "none"),
        "demo, no folder": ("-m", "demo"),
    }
    for name, words in cases.items():
        done = command(*words, **programs())
        yield f"{name}: exits {done.returncode}, says {bool(done.stdout)}, errs {bool(done.stderr)}"


def inspect() -> Iterator[str]:
    """What `inspect` finds in two logs."""
    for log in (HEALTHY, TRL / "healthy.log"):
        yield from scrubbed(stepwatch("inspect", str(log)), log.parent).splitlines()


def backtest() -> Iterator[str]:
    """Keys and types of the JSON, and what `--fail-on` makes of alerts."""
    document = json.loads(stepwatch("backtest", "--format=json", str(SICK)))
    yield from sorted(set(_shape("", document)))
    words = [line.split()[:1] for line in stepwatch("backtest", str(SICK)).splitlines() if line.strip()]
    yield f"as a table: {len(words)} lines"


def run() -> Iterator[str]:
    """`run --runs DIR --name NAME -- CMD`: the exit code, the log, and the record beside it."""
    cases = {
        "ends well": ("echo out; echo err >&2", "0"),
        "fails": ("echo out; exit 3", "3"),
        "is killed": ("kill -KILL $$", "137"),
        "is terminated": ("kill -TERM $$", "143"),
    }
    for name, (script, _) in cases.items():
        with TemporaryDirectory(prefix="stepwatch-parity-") as folder:
            (Path(folder) / "config.yaml").write_text("")
            run = ["run", "--config", f"{folder}/config.yaml", "--runs", f"{folder}/runs", "--name", "ppo/a"]
            done = command("-m", "stepwatch", *run, "--", "sh", "-c", script)
            yield f"{name}: exits {done.returncode}, says {done.stdout.split()}"
            for file in sorted(Path(folder, "runs").rglob("*")):
                if file.suffix == ".log":
                    yield f"{name}: {file.name}: {sorted(file.read_text().split())}"
                elif file.is_file():
                    records = [json.loads(line) for line in file.read_text().splitlines()]
                    kept = {key: value for each in records for key, value in each.items()}
                    told = [f"{key}={kept[key]}" for key in sorted(kept) if key not in ("started", "ended")]
                    yield f"{name}: {file.name}: {' '.join(told)}"
    done = command("-m", "stepwatch", "run", "--runs", "/tmp", "--name", "a", "--", "/no/such/program")
    yield f"no program: exits {done.returncode}, errs {bool(done.stderr)}"


def _shape(place: str, value: object) -> Iterator[str]:
    if isinstance(value, dict):
        for key, each in value.items():
            yield from _shape(f"{place}.{key}", each)
    elif isinstance(value, list):
        for each in value:
            yield from _shape(f"{place}[]", each)
        yield f"{place}: list"
    else:
        kind = (
            "number"
            if isinstance(value, (int, float)) and not isinstance(value, bool)
            else type(value).__name__
        )
        yield f"{place}: {kind}"


def _contents(folder: Path) -> dict[str, str]:
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }
