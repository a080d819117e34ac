"""No two folders of ours import each other, and the exporters import nothing of the operator's side."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
PACKAGES = ("exporter", "stepwatch", "demo", "tools")


def modules() -> dict[str, Path]:
    """Each module by its dotted name; a package is the module of its folder."""
    files = (file for package in PACKAGES for file in (CHECKOUT / package).rglob("*.py"))
    return {".".join(file.relative_to(CHECKOUT).with_suffix("").parts): file for file in files}


@cache
def folders() -> dict[str, set[str]]:
    """Each folder with the folders that its modules import from."""
    known = modules()
    packages = {name.removesuffix(".__init__") for name in known if name.endswith(".__init__")}
    found: dict[str, set[str]] = {name: set() for name in packages}
    for name, file in known.items():
        own = name.rpartition(".")[0]
        for node in ast.walk(ast.parse(file.read_text())):
            if not isinstance(node, ast.ImportFrom) or not node.module:
                continue
            for each in node.names:
                whole = f"{node.module}.{each.name}"
                used = next(
                    (name for name in (whole, node.module) if name in packages),
                    node.module.rpartition(".")[0],
                )
                if used in packages - {own}:
                    found[own].add(used)
    return found


def test_no_two_folders_import_each_other_by_whatever_way() -> None:
    list(TopologicalSorter(folders()).static_order())  # raises CycleError, which names the circle


def test_the_exporters_work_without_the_operators_side() -> None:
    """Their image has nothing else."""
    used = {each for name, below in folders().items() if name.startswith("exporter") for each in below}

    assert {each for each in used if not each.startswith("exporter")} == set()
