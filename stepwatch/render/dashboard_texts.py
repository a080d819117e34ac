"""The texts of a dashboard's template, in another language."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from stepwatch.languages import Catalogue
from stepwatch.render.dashboard import Json

_TEXTS = ("title", "description", "label", "legend", "noValue", "displayName", "text", "custom.axisLabel")
"""The keys of texts, wherever they stand."""

_VALUE = re.compile(r"\{\{.*?\}\}")
"""What Grafana replaces by a label."""

"""A text after its code, which is translated without that."""


def translated(document: Json, translate: Catalogue) -> Json:
    """Return a dashboard's template with its texts in another language; names of fields stay."""
    if not translate.texts:
        return document
    result: Json = _Texts(translate).of(document)
    return result


class _Texts:
    def __init__(self, translate: Catalogue) -> None:
        self._translate = translate

    def of(self, part: Any) -> Any:
        """Return a part of the template with its texts translated."""
        if isinstance(part, list):
            return [self.of(each) for each in part]
        if not isinstance(part, Mapping):
            return part
        made = {key: self._value(key, value) for key, value in part.items()}
        if made.get("type") == "value" and isinstance(made.get("options"), dict):
            made["options"] = {name: self._mapped(name, result) for name, result in made["options"].items()}
        return made

    def _value(self, key: str, value: Any) -> Any:
        if key in _TEXTS and isinstance(value, str):
            return self._said(value)
        if key == "columns":
            return {name: self._column(name, style) for name, style in value.items()}
        if key == "annotations":
            return [{**self.of(each), "name": self._said(each["name"])} for each in value]
        return self.of(value)

    def _column(self, name: str, style: Json) -> Json:
        hidden = style.get("custom.hidden", False)
        heading = {} if hidden else {"displayName": self._said(style.get("displayName", name))}
        return {**self.of(style), **heading}

    def _mapped(self, value: str, result: Json) -> Json:
        """A value without a text of its own is shown as it is."""
        return result if "text" in result else {"text": self._said(value), **result}

    def _said(self, text: str) -> str:
        text = text.strip()
        if not re.search("[A-Za-z]", _VALUE.sub("", text)):
            return text
        code, text = found.groups() if (found := re.fullmatch(r"(\d+: )(.+)", text)) else ("", text)
        return code + self._translate(text)
