"""Notebooks with the table of steps that transformers' NotebookTrainingTracker and Unsloth show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.runs.conftest import Watching

UNSLOTH = ["Step", "Training Loss", "reward", "completions / mean_length", "kl", "rewards / a&amp;b / mean"]


def table(names: list[str], rows: list[list[str]], done: int = 0, total: int = 0) -> str:
    bar = f"<div>\n  <progress value='{done}' max='{total}' style='width:300px;'></progress>\n  [{done}]"
    head = "".join(f"      <th>{name}</th>\n" for name in names)
    body = "".join(
        "    <tr>\n" + "".join(f"  <td>{cell}</td>\n" for cell in row) + "    </tr>\n" for row in rows
    )
    start = (
        f'<table border="1" class="dataframe">\n  <thead>\n <tr style="text-align: left;">\n{head}    </tr>\n'
    )
    return f"{f'{bar}</div>' if total else ''}{start}  </thead>\n  <tbody>\n{body}  </tbody>\n</table><p>"


def cell(*htmls: str | list[str]) -> dict[str, Any]:
    outputs: list[Any] = [{"output_type": "stream", "name": "stdout", "text": ["loading\n"]}]
    outputs += [
        {"output_type": "display_data", "data": {"text/html": html, "text/plain": "<IPython>"}}
        for html in htmls
    ]
    return {"cell_type": "code", "source": ["trainer.train()"], "outputs": outputs}


def notebook(path: Path, *cells: dict[str, Any], indent: int | None = 1) -> None:
    found = [{"cell_type": "markdown", "source": ["# GRPO"]}, *cells]
    path.write_text(json.dumps({"cells": found, "nbformat": 4}, indent=indent))


def grpo(*steps: int) -> str:
    rows = [[str(step), "0.000100", f"{step / 64:.6f}", "312.500000", "nan", "0.250000"] for step in steps]
    return table(UNSLOTH, rows, done=steps[-1], total=30)


@pytest.mark.parametrize("indent", [1, None], ids=["Jupyter", "in one line"])
@pytest.mark.parametrize("split", [True, False], ids=["lines", "one text"])
def test_the_table_of_a_finished_training_is_a_run(
    folder: Path, watched: Watching, *, indent: int | None, split: bool
) -> None:
    page, path = watched(), folder / "grpo.ipynb"
    pandas = table(["", "Step", "reward"], [["0", "99", "7.0"]]).replace("<td>0</td>", "<th>0</th>")
    html = grpo(10, 20, 30)
    notebook(
        path, cell(pandas), cell(html.splitlines(keepends=True) if split else html, pandas), indent=indent
    )
    found = page.discover()

    assert found.value("rl_reward", run="grpo") == 30 / 64
    assert found.value("rl_policy_loss", run="grpo") == 0.0001
    assert found.value("rl_response_length", run="grpo") == 312.5
    assert found.value("rl_reward_component", run="grpo", component="a&b") == 0.25
    assert found.value("rl_nonfinite_steps_total", run="grpo", signal="kl") == 3
    assert found.value("rl_step", run="grpo") == found.value("rl_total_steps", run="grpo") == 30
    assert found.value("rl_records_total", run="grpo") == 3
    assert found.value("rl_run_info", run="grpo", framework="trl", source="notebook") == 1


def test_a_notebook_that_is_saved_again_goes_on(folder: Path, watched: Watching) -> None:
    page, path = watched(), folder / "grpo.ipynb"
    for last in range(1, 4):
        evaluated = table(["Step", "Training Loss", "Validation Loss"], [["5", "0.500000", "No log"]])
        notebook(path, cell(evaluated), cell(grpo(*range(10, 10 * last + 1, 10))))
        found = page.discover()

        assert found.value("rl_step", run="grpo") == 10 * last
        assert found.value("rl_records_total", run="grpo") == last + 1
    assert found.value("rl_restarts_total", run="grpo") == 0


def test_a_notebook_without_such_a_table_is_no_run(folder: Path, watched: Watching) -> None:
    page = watched()
    notebook(
        folder / "a.ipynb", cell(table(["Step", "Colour"], [["1", "red"]])), cell("<b>Step</b>", ["<table>"])
    )
    (folder / "b.ipynb").write_text('{\n "cells": [1, {"outputs": 7}, {"outputs": [null, {"data": 3}]}]\n}')

    assert not page.discover().runs()
