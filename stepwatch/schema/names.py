"""Types of the names in config.yaml: jobs, receivers, labels, and patterns of run names."""

from __future__ import annotations

import re
from typing import Annotated, Any

from stepwatch.schema.errors import Fault
from stepwatch.schema.globs import to_re2
from stepwatch.schema.section import Checked

OWN_JOBS = ("runs", "rollouts", "gpu", "node", "prometheus", "alertmanager", "docker")
OWN_LABELS = ("run", "job", "instance", "role", "severity", "topic")

_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_NAME = re.compile(r"[^\W_][\w .:/@+-]{0,99}(?<! )")


def _name(value: Any) -> str:
    if isinstance(value, str) and _NAME.fullmatch(value):
        return value
    raise Fault(
        "is not a valid name",
        expected="up to 100 letters, digits and any of _ . : / @ + -, starting with a letter or digit",
        fix="rename it, or quote it if it is a number",
    )


def _job(value: Any) -> str:
    name = _name(value)
    if name in OWN_JOBS:
        raise Fault(
            "is a job of Stepwatch itself",
            expected=f"any name but {', '.join(OWN_JOBS)}",
            fix="choose another name",
        )
    return name


def _label(value: Any) -> str:
    expected = "a letter or _, then letters, digits and _"
    if not isinstance(value, str) or not _LABEL.fullmatch(value):
        raise Fault("is no Prometheus label name", expected=expected, fix="rename the label")
    if value.startswith("__"):
        raise Fault("is reserved by Prometheus", expected="a name without leading __", fix="rename the label")
    if value in OWN_LABELS:
        raise Fault(
            "is a label that Stepwatch sets itself",
            expected=f"any name but {', '.join(OWN_LABELS)}",
            fix="use role: for the role, another name for the rest",
        )
    return value


def _label_value(value: Any) -> str:
    if isinstance(value, str) and value:
        return value
    raise Fault("is not a string", expected="a text that is not empty", fix="quote it")


def _glob(value: Any) -> str:
    expected = "a pattern of run names such as ppo/* or sft-[0-9]"
    if not isinstance(value, str) or not value:
        raise Fault("is not a pattern", expected=expected, fix="write a text, quoted if it starts with *")
    try:
        to_re2(value)
    except ValueError as error:
        raise Fault(
            f"is not a pattern ({error})", expected=expected, fix="use ? for the odd character"
        ) from error
    return value


JobName = Annotated[str, Checked(_job)]
ReceiverName = Annotated[str, Checked(_name)]
LabelName = Annotated[str, Checked(_label)]
LabelValue = Annotated[str, Checked(_label_value)]
RunGlob = Annotated[str, Checked(_glob)]
