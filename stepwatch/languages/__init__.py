"""Texts in the language of config.yaml: a PO catalogue by English text; `msgctxt` names one source."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

ENGLISH = "en"
LANGUAGES = (ENGLISH, "zh")

_PART = re.compile(r"\{(\w+)\}")


class Catalogue:
    """Gives texts in one language by their English texts; ``own`` are those for one source, by its name."""

    def __init__(
        self,
        texts: Mapping[str, str] | None = None,
        origins: Mapping[str, frozenset[str]] | None = None,
        own: Mapping[str, Mapping[str, str]] | None = None,
    ) -> None:
        self.texts = texts or {}
        self._origins = origins or {}
        self._own = own or {}

    def __call__(self, text: str, /, **parts: object) -> str:
        """Return a text in this language, ``{name}`` in which becomes the part of that name."""
        # Braces of other names, as in Grafana's `{{gpu}}`, stay.
        return _PART.sub(lambda found: str(parts.get(found[1], found[0])), self.texts.get(text, text))

    def within(self, source: str) -> Catalogue:
        """Return the catalogue for the texts of a dashboard, or of a module of alerts."""
        return Catalogue({**self.texts, **self._own[source]}) if source in self._own else self

    def of(self, folder: str) -> dict[str, str]:
        """Return the translations of the texts that the source files of a folder have."""
        return {
            text: translation
            for text, translation in self.texts.items()
            if any(each.startswith(f"{folder}/") for each in self._origins[text])
        }


def file(language: str) -> Path:
    """Return the file of a language's catalogue."""
    return Path(__file__).with_name(f"{language}.po")


@lru_cache
def catalogue(language: str) -> Catalogue:
    """Return the catalogue of a language of `LANGUAGES`."""
    if language == ENGLISH:
        return Catalogue()
    from babel.messages.pofile import read_po  # noqa: PLC0415  takes time that English does not need

    with file(language).open("rb") as content:
        entries = [
            (
                each.context or "",
                str(each.id),
                str(each.string),
                frozenset(path for path, _ in each.locations),
            )
            for each in read_po(content)
            if each.id and each.string and not each.fuzzy
        ]
    texts: dict[str, dict[str, str]] = {}
    for source, text, translation, _ in entries:
        texts.setdefault(source, {})[text] = translation
    return Catalogue(texts.pop(""), {text: origins for _, text, _, origins in entries}, texts)
