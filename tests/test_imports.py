"""Imports go down: from commands to what they use, and never back."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
PRODUCT = CHECKOUT / "stepwatch"


def part(module: str) -> str:
    """The folder below stepwatch/ that a module is in, or the module itself beside the folders."""
    return module.split(".")[1]


def imported(file: Path) -> Iterator[str]:
    """The modules of stepwatch/ that a file imports, wherever it does."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == PRODUCT.name:
            yield from (f"{node.module}.{name.name}" for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (name.name for name in node.names)


@cache
def below() -> dict[str, set[str]]:
    """Each part of stepwatch/ with the parts that it imports."""
    found: dict[str, set[str]] = {}
    for file in PRODUCT.rglob("*.py"):
        own = part(".".join(file.relative_to(CHECKOUT).with_suffix("").parts))
        used = {part(each) for each in imported(file) if each.startswith(f"{PRODUCT.name}.")}
        found.setdefault(own, set()).update(used - {own})
    return found


def reached(start: str) -> dict[str, set[str]]:
    """The parts that one imports, directly or by others, each with those that it imports."""
    every, found, pending = below(), {}, [start]
    while pending:
        name = pending.pop()
        if name not in found:
            found[name] = every[name]
            pending += every[name]
    return found


def test_limits_go_from_their_values_to_the_table_the_configuration_and_the_rules() -> None:
    order = list(TopologicalSorter(reached("rules")).static_order())

    assert order.index("schema") < order.index("alerts") < order.index("config") < order.index("rules")


def test_the_table_of_alerts_imports_no_configuration() -> None:
    assert below()["alerts"] == {"schema"}


# folders of all packages

PACKAGES = ("exporter", "stepwatch", "demo", "tools")
MOST_MODULES = 16


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


def test_a_folder_can_be_taken_in_at_a_glance() -> None:
    sizes = Counter(name.rpartition(".")[0] for name in modules() if not name.endswith(".__init__"))

    assert {name: size for name, size in sizes.items() if size > MOST_MODULES} == {}
