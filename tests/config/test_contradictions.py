"""Limits that contradict each other or themselves are refused, whichever alert they are of."""

import re

import pytest

from stepwatch.config import load
from stepwatch.config.models import Alerts
from stepwatch.schema.errors import ConfigError
from stepwatch.schema.section import Section


def numbers(section, path=()):
    """Every number below a section, by its path."""
    for name, value in section:
        if isinstance(value, Section):
            yield from numbers(value, (*path, name))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            yield (*path, name), value


def paired(block):
    """Path and both values of every number that both levels of a block have."""
    found = dict(numbers(block))
    for (level, *path), value in found.items():
        if level == "warning" and ("critical", *path) in found:
            yield tuple(path), value, found[("critical", *path)]


LIMITS = [(name, path, value) for name, block in Alerts() for path, value in numbers(block) if value > 0]
BOTH_LEVELS = [(name, *limit) for name, block in Alerts() for limit in paired(block)]
"""Limits that both levels of an alert have: of the warning, and of the critical alert."""


def named(limits):
    return [".".join([name, *path]) for name, path, *_ in limits]


def written(name, path, value):
    """The setting as one line of YAML below `alerts`."""
    return f"{name}: {''.join(f'{{{key}: ' for key in path)}{value}{'}' * len(path)}"


def beyond(value, other):
    """A value that lies on the far side of another."""
    if value > other:
        return other / 2
    return other + 1 if isinstance(other, int) else (other + 1) / 2 if other < 1 else 2 * other


@pytest.fixture(name="refusal")
def _refusal(tmp_path):
    def refusal(text):
        path = tmp_path / "config.yaml"
        path.write_text(text)
        with pytest.raises(ConfigError) as caught:
            load(path)
        return str(caught.value).removeprefix(str(path))

    return refusal


@pytest.mark.parametrize(("name", "path", "value"), LIMITS, ids=named(LIMITS))
def test_a_limit_of_the_wrong_sign_is_refused(refusal, name, path, value):
    message = refusal(f"alerts:\n  {written(name, path, -value)}\n")

    key = re.escape(".".join(["alerts", name, *path]))
    says = r"-\S+ is (negative|below 1)\. Expected: .+\. Fix: write \S+ or more\."
    assert re.fullmatch(rf":2: {key}: {says}", message)


@pytest.mark.parametrize(("name", "path", "warning", "critical"), BOTH_LEVELS, ids=named(BOTH_LEVELS))
def test_a_warning_beyond_its_critical_limit_is_refused_in_the_base_and_in_an_override(
    refusal, name, path, warning, critical
):
    value = beyond(warning, critical)
    setting = written(name, ("warning", *path), value)
    key = ".".join([name, "warning", *path])
    says = (
        rf"{value:g} is beyond the critical limit {critical:g}\. "
        r"Expected: a warning that comes before the critical alert\. "
        r"Fix: (lower|raise) this limit, or (raise|lower) the critical one\."
    )

    assert re.fullmatch(rf":2: alerts\.{re.escape(key)}: {says}", refusal(f"alerts:\n  {setting}\n"))
    if Alerts().block(name).about_runs:
        override = refusal(f"overrides:\n- runs: a\n  alerts:\n    {setting}\n")
        assert re.fullmatch(rf":4: overrides\[0\]\.alerts\.{re.escape(key)}: {says}", override)
