"""Grafana's own libraries of several versions, bundled for a browser: `tests/grafana/libraries`."""

from __future__ import annotations

import functools
import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

from stepwatch.system.releases import tools_folder
from tests.real.build import locked
from tests.real.tools import unavailable

SOURCE = Path(__file__).parents[1] / "grafana" / "libraries"
USUAL, OTHERS = "12", ("13", "11", "10")
"""Folders of versions; pictures and most tests are made with the first."""
ONLY_READ = ("11", "10")
"""Versions whose panels the page does not draw: what people read on them is known without."""
PAGE = """<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="page.css"><body>
<script>window.grafanaBootData = {settings: {featureToggles: {}}, user: {}}</script>
<script src="page.js"></script>
"""
LOADERS = {"svg": "text", "png": "empty", "ttf": "empty", "woff2": "empty"}
QUIET = ("--ignore-scripts", "--no-audit", "--no-fund", "--legacy-peer-deps")


@functools.cache
def page(version: str = USUAL) -> Path:
    """The page whose `window.show` draws panels; the libraries are installed once, in about a minute."""
    own = SOURCE / version
    place = tools_folder() / f"grafana-libraries-{_digest(own / 'package-lock.json')}"
    sources = (SOURCE / "page.tsx", own / "version.ts")
    bundle = place / f"bundle-{_digest(*sources)}"
    if missing := [name for name in ("node", "npm") if not shutil.which(name)]:
        unavailable(f"Grafana's libraries need {' and '.join(missing)}")
    with locked(place):
        if not (place / "node_modules" / ".package-lock.json").is_file():
            sys.stderr.write(f"Installing {place.name}, once (a minute, 800 MB) ...\n")
            place.mkdir(parents=True, exist_ok=True)
            for name in ("package.json", "package-lock.json"):
                shutil.copy(own / name, place)
            _run(["npm", "ci", *QUIET], place)
        if not bundle.is_dir():
            for source in sources:
                shutil.copy(source, place)
            loaders = [f"--loader:.{kind}={loader}" for kind, loader in LOADERS.items()]
            options = ["--bundle", "--minify", "--format=iife", "--log-level=error", *loaders]
            defined = ["--define:process.env.NODE_ENV='production'", "--define:global=window"]
            output = place / "new"
            _run(["node_modules/.bin/esbuild", "page.tsx", *options, *defined, f"--outdir={output}"], place)
            (output / "index.html").write_text(PAGE)
            output.rename(bundle)
    return bundle / "index.html"


def _digest(*files: Path) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        unavailable(
            f"Grafana's libraries: {' '.join(command[:2])}: {(done.stderr or done.stdout).strip()[-800:]}"
        )
