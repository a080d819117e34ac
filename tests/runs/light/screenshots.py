"""Make the pictures of docs/light.md, in four minutes: ``python -m tests.runs.light.screenshots``.

Trainers' logs are written once more, step by step, before a whole stack with simulated GPUs; a real browser
looks at the page when enough has happened.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from PIL import Image
from typing_extensions import Self

from exporter.runs.light import formatting
from tests import own_logs
from tests.e2e.stack import PAIRS, PARTS, ROOT, Stack, server
from tests.e2e.writer import writing
from tests.runs.light.browser import PHONE, Browser, started

DOCS = ROOT / "docs"
SECONDS = 200.0
SICK = "grpo/short-answers"
LOGS = {
    SICK: (own_logs.SICK, 0.3),
    "grpo/long-run": (own_logs.QUIET, 0.35),
    "grpo/resumed": (own_logs.RESUMED, 0.5),
}
"""The runs: their logs, and how many steps a second of them are written."""

COLOURS = 256


class Scene(Stack):
    """The stack with GPUs that are simulated: this machine may have none."""

    names: ClassVar[tuple[str, ...]] = (*PARTS, "gpu")
    gpus: ClassVar[tuple[str, ...]] = ("--backend=demo",)

    def __enter__(self) -> Self:
        part = self.parts["gpu"]
        self._open.enter_context(server(replace(part, command=(*part.command, *self.gpus))))
        return super().__enter__()


def main() -> None:
    """Write the pictures into docs/."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as open_:
        scene = open_.enter_context(Scene(Path(folder), PAIRS[-1]))
        for name, (log, rate) in LOGS.items():
            target = scene.runs / f"{name}.log"
            open_.enter_context(writing(log, target, f"--rate={rate}", "--stay"))
        sys.stderr.write(f"Waiting for {SECONDS:.0f} s of training ...\n")
        time.sleep(SECONDS)
        with started() as browser:
            take(browser, f"http://{scene.config.address('exporter')}")


def take(browser: Browser, url: str) -> None:
    """The list light, dark and on a phone, and the page of the sick run."""
    browser.forget()
    browser.size(1180, 900)
    for name, scheme in (("light", "light"), ("light-dark", "dark")):
        browser.prefer(scheme)
        browser.open(url)
        keep(browser, name, 790)
    browser.prefer("light")
    browser.open(f"{url}/{formatting.page(SICK)}")
    keep(browser, "light-run", 1500)
    browser.size(*PHONE)
    browser.open(url)
    keep(browser, "light-phone", 1100)


def keep(browser: Browser, name: str, height: int) -> None:
    """Write a picture."""
    path = DOCS / f"{name}.png"
    browser.picture(path, height)
    shrink(path)


def shrink(path: Path) -> None:
    """Write a picture again in few colours, the most frequent of its own: it is to be small."""
    with Image.open(path) as picture:
        whole = picture.convert("RGB")
        often = sorted(whole.getcolors(whole.width * whole.height), reverse=True)[:COLOURS]
        palette = Image.new("P", (1, 1))
        palette.putpalette(bytes(itertools.chain.from_iterable(colour for _, colour in often)))
        few = whole.quantize(palette=palette, dither=Image.Dither.NONE)
        few.save(path, optimize=True)
    sys.stderr.write(f"{path}: {path.stat().st_size / 1000:.0f} kB\n")


if __name__ == "__main__":
    main()
