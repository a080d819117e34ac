"""Puts what lies beside the packages into the wheel, as data of the package stepwatch."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent
DATA = ("config.yaml", "compose.yaml", "*/templates/**/*.j2", "*/start.sh", "presets/*.yaml", "docs/*.md")


class Build(build_py):
    """Copies the data next to the packages that were built."""

    def run(self) -> None:
        """Build the packages; those that stay in the checkout find the data where it is."""
        super().run()
        if self.editable_mode:
            return
        for pattern in DATA:
            files = [*ROOT.glob(pattern)]
            if not files:
                raise FileNotFoundError(f"{ROOT / pattern}: no such file. Fix: build from a whole checkout.")
            for file in files:
                target = Path(self.build_lib, "stepwatch/data", file.relative_to(ROOT))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, target)


setup(cmdclass={"build_py": Build})
