"""Imports go down: from commands to what they use, and never back."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
