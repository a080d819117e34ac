"""English texts that the user's language replaces when they are sent."""

from __future__ import annotations

import re
from collections.abc import Mapping


class Text(str):
    """An English text, translatable; ``{name}`` in it becomes the part of that name, perhaps a ``Text``."""

    text: str
    parts: Mapping[str, object]

    def __new__(cls, text: str, /, **parts: object) -> Text:  # noqa: PYI034  Self is Python 3.11's
        made = super().__new__(cls, _filled(text, parts))
        made.text, made.parts = text, parts
        return made

    def translated(self, texts: Mapping[str, str]) -> str:
        """Return it with the translation of each text; what has none stays English."""
        return _filled(
            texts.get(self.text, self.text),
            {
                name: part.translated(texts) if isinstance(part, Text) else part
                for name, part in self.parts.items()
            },
        )


def _filled(text: str, parts: Mapping[str, object]) -> str:
    return re.sub(r"\{(\w+)\}", lambda found: str(parts[found[1]]), text)
