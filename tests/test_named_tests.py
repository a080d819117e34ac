"""The tests that documents name exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from stepwatch.system.environment import CHECKOUT

DOCUMENTS = [CHECKOUT / "CONTRIBUTING.md", *sorted((CHECKOUT / "docs").glob("*.md"))]
NAMED = re.compile(r"\btests/[\w./-]*\w(?:::\w+)?")


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_each_test_that_a_document_names_exists(document: Path) -> None:
    named = set(NAMED.findall(document.read_text()))

    assert named or document.stem != "reliability"
    for name in named:
        path, _, function = name.partition("::")
        assert (CHECKOUT / path).exists(), name
        if function:
            tree = ast.parse((CHECKOUT / path).read_text())
            assert function in {each.name for each in tree.body if isinstance(each, ast.FunctionDef)}, name
