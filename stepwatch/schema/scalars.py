"""Types of single values, spelled as Prometheus spells them; nothing is converted from another type."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Annotated, Any, Literal

from exporter.logging_setup import FORMATS, LEVELS
from stepwatch.languages import LANGUAGES
from stepwatch.schema.errors import Fault
from stepwatch.schema.section import Checked, boolean

_UNITS_MS = {
    "y": 31_536_000_000,
    "w": 604_800_000,
    "d": 86_400_000,
    "h": 3_600_000,
    "m": 60_000,
    "s": 1000,
    "ms": 1,
}
_DURATION = re.compile("".join(rf"(?:([0-9]{{1,9}}){unit}(?![a-z]))?" for unit in _UNITS_MS))

# Prometheus counts nanoseconds in 64 bits.
MAX_SECONDS = 100 * 365 * 86_400

_SIZE_UNITS = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}


@dataclass(frozen=True, order=True)
class Duration:
    """A span of time, printed as Prometheus reads it (`1h30m`)."""

    milliseconds: int

    @classmethod
    def parse(cls, text: str) -> Duration:
        """Return the duration of a text such as `5s`, `1h30m` or `90d`. Raises ValueError."""
        match = _DURATION.fullmatch(text)
        if not match or not any(match.groups()):
            raise ValueError("is not a duration")
        duration = cls(
            sum(
                int(count or 0) * unit for count, unit in zip(match.groups(), _UNITS_MS.values(), strict=True)
            )
        )
        if duration.seconds > MAX_SECONDS:
            raise ValueError("is longer than 100 years")
        return duration

    @property
    def seconds(self) -> float:
        """The span in seconds."""
        return self.milliseconds / 1000

    def __str__(self) -> str:
        if not self.milliseconds:
            return "0s"
        return "".join(_parts(self.milliseconds))


def _parts(rest: int) -> list[str]:
    # Days only where they come out even: 36h says more than 1d12h.
    units = {unit: size for unit, size in _UNITS_MS.items() if unit not in "yw"}
    if rest % units["d"]:
        del units["d"]
    parts = []
    for unit, size in units.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{count}{unit}")
    return parts


@dataclass(frozen=True)
class Size:
    """An amount of storage in units of 1024, as Prometheus reads it (`20GB`)."""

    text: str

    @classmethod
    def parse(cls, text: str) -> Size:
        """Return the size of a text such as `20GB`. Raises ValueError."""
        match = re.fullmatch(r"([0-9]{1,6})(KB|MB|GB|TB)", text)
        if not match or not int(match[1]):
            raise ValueError("is not a size")
        return cls(f"{int(match[1])}{match[2]}")

    @property
    def bytes(self) -> int:
        """The size in bytes."""
        return int(self.text[:-2]) * _SIZE_UNITS[self.text[-2:]]

    def __str__(self) -> str:
        return self.text


# Prometheus drops a series it has not seen for 5 minutes; two scrapes must fit well into that.
MAX_INTERVAL = Duration.parse("2m")

# Of how alike two words are, from 0 to 1.
_CLOSE = 0.6
_USUAL_LEAD = 0.1


def number(low: float, high: float, expected: str, *, whole: bool = False) -> Callable[[Any], Any]:
    """Return the check of a number between two limits."""
    name = "whole number" if whole else "number"

    def check(value: Any) -> Any:
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise Fault(f"is not a {name}", expected=expected, fix=f"write a {name} without quotes")
        if value < low:
            says = "is negative" if value < 0 else f"is below {low}"
            raise Fault(says, expected=expected, fix=f"write {low} or more")
        if not value <= high:
            raise Fault(f"is above {high}", expected=expected, fix=f"write {high} or less")
        return value

    return check


_whole = partial(number, whole=True)
FACTOR = re.compile(r"([/*])\s*(\d+(?:\.\d+)?)")
"""By what a retry divides or multiplies the value of an argument."""


def _parsed(parse: Callable[[str], Any], value: Any, expected: str) -> Any:
    try:
        return parse(value if isinstance(value, str) else "")
    except ValueError as error:
        fix = "write a whole number and its unit, in one word"
        raise Fault(str(error), expected=expected, fix=fix) from error


def _duration(*, positive: bool) -> Callable[[Any], Duration]:
    expected = "a duration" + " above 0" * positive + " such as 5s, 10m or 1h30m"

    def check(value: Any) -> Duration:
        duration = value if isinstance(value, Duration) else _parsed(Duration.parse, value, expected)
        if positive and not duration.milliseconds:
            raise Fault("is zero", expected=expected, fix="write a longer one")
        return duration

    return check


def _interval(value: Any) -> Duration:
    duration = _duration(positive=True)(value)
    if duration > MAX_INTERVAL:
        raise Fault(
            f"is longer than {MAX_INTERVAL}",
            expected=f"at most {MAX_INTERVAL}, as Prometheus forgets a series after 5m",
            fix="write a shorter one",
        )
    return duration


def _size(value: Any) -> Size:
    if isinstance(value, Size):
        return value
    return _parsed(Size.parse, value, "a size such as 500MB or 20GB, with KB, MB, GB or TB")  # type: ignore[no-any-return]


def choice(*words: str) -> Callable[[Any], str]:
    """Return the check of a word that is one of some."""

    def check(value: Any) -> str:
        if value in words and isinstance(value, str):
            return value
        raise Fault("is not one of the choices", expected=one_of(words), fix=instead(value, words))

    return check


def one_of(words: Iterable[str]) -> str:
    """Return the words as an expectation."""
    words = list(words)
    return words[0] if len(words) == 1 else f"one of {', '.join(words)}"


def instead(
    value: Any, words: Iterable[str], *, usual: Container[str] = (), aliases: Mapping[str, str] | None = None
) -> str:
    """Return the fix for an unknown word: the likeliest meant, the ``usual`` ones first, if any."""
    known = {word.lower(): word for word in words}
    known |= {alias.lower(): word for alias, word in (aliases or {}).items() if word.lower() in known}
    compare = difflib.SequenceMatcher(b=str(value).lower()[:60])

    def likeness(word: str) -> float:
        compare.set_seq1(word)
        return compare.ratio() + _USUAL_LEAD * (known[word] in usual)

    close = max(known, key=likeness)
    return (
        f"did you mean {known[close]}?" if likeness(close) >= _CLOSE else "write one of these, or delete it"
    )


Switch = Annotated[bool, Checked(boolean)]
Limit = Annotated[float, Checked(number(0, 1e300, "a number of 0 or more"))]
NegativeLimit = Annotated[float, Checked(number(-1e300, 0, "a number of 0 or less"))]
Ratio = Annotated[float, Checked(number(0, 1, "a share from 0 to 1 (5 % is 0.05)"))]
Count = Annotated[int, Checked(_whole(1, 10**15, "a whole number of 1 or more"))]
SeriesCount = Annotated[int, Checked(_whole(0, 1000, "a whole number from 0 to 1000"))]
GpuCount = Annotated[int, Checked(_whole(0, 64, "a whole number from 0 to 64"))]
ProcessCount = Annotated[int, Checked(_whole(0, 100, "a whole number from 0 to 100"))]
CheckpointCount = ProcessCount
Port = Annotated[int, Checked(_whole(1, 65535, "a port from 1 to 65535"))]
ActionCount = Annotated[int, Checked(_whole(1, 100, "a whole number from 1 to 100"))]
ActionStep = Annotated[str, Checked(choice("evidence", "notify", "stop"))]
XidCode = Annotated[int, Checked(_whole(1, 999, "an Xid code from 1 to 999"))]
RecoveryAction = Annotated[int, Checked(_whole(1, 99, "an action of the driver from 1 to 99"))]
Span = Annotated[Duration, Checked(_duration(positive=False))]
PositiveSpan = Annotated[Duration, Checked(_duration(positive=True))]
Interval = Annotated[Duration, Checked(_interval)]
StorageSize = Annotated[Size, Checked(_size)]
Severity = Annotated[Literal["critical", "warning", "info"], Checked(choice("critical", "warning", "info"))]
SentSeverity = Annotated[Literal["critical", "warning"], Checked(choice("critical", "warning"))]
TOPICS = ("entropy", "gpu", "gradient", "kl", "length", "progress", "reward", "rollout", "stack")
"""What alerts are about: their label `topic`. A test holds it against the table of alerts."""
Topic = Annotated[str, Checked(choice(*TOPICS))]
Role = Annotated[
    Literal["rollout", "gpu", "host", "other"], Checked(choice("rollout", "gpu", "host", "other"))
]
MachineRole = Annotated[Literal["all", "hub", "agent"], Checked(choice("all", "hub", "agent"))]
RulesPlace = Annotated[Literal["here", "none"], Checked(choice("here", "none"))]
Scheme = Annotated[Literal["http", "https"], Checked(choice("http", "https"))]
LogLevel = Annotated[str, Checked(choice(*LEVELS))]
LogFormat = Annotated[str, Checked(choice(*FORMATS))]
Language = Annotated[str, Checked(choice(*LANGUAGES))]


OWN_JOBS = ("runs", "rollouts", "gpu", "node", "prometheus", "alertmanager", "docker")
OWN_LABELS = ("run", "job", "instance", "role", "severity", "topic")

# Shell patterns of run names become regular expressions that Prometheus and Alertmanager read. Both anchor
# every matcher at both ends, so the text carries no anchors. It holds no backslash and no double quote, so it
# fits in a quoted matcher unchanged: run=~"ppo/gsm8k[.]v2.*".

_IN_SET = r"[A-Za-z0-9_./:@+=, ]"
_TOKEN = re.compile(
    rf"(?P<set>\[!?-?(?:{_IN_SET}(?:-{_IN_SET})?)+-?\])|(?P<wild>[*?])|(?P<plain>[^\[\]\"\\^\x00-\x1f])"
)
_SPECIAL = frozenset(".+*?()|{}$")


@cache
def to_re2(glob: str) -> str:
    """Return a shell pattern (`*`, `?`, `[ab]`, `[!ab]`) as an RE2 expression. Raises ValueError."""
    expression, end = "", 0
    while end < len(glob):
        token = _TOKEN.match(glob, end)
        if not token:
            raise ValueError(f"the pattern is invalid from {glob[end:]!r} on")
        text, end = token[0], token.end()
        if token["set"]:
            for first, last in re.findall(rf"({_IN_SET})-({_IN_SET})", text):
                if first > last:
                    raise ValueError(f"the pattern has an empty range, {first}-{last}")
            expression += text.replace("[!", "[^", 1)
        elif token["wild"]:
            expression += {"*": ".*", "?": "."}[text]
        else:
            expression += f"[{text}]" if text in _SPECIAL else text
    return expression


def fits(glob: str, name: str) -> bool:
    """Return whether a shell pattern fits a whole name, as it does in a matcher."""
    return re.fullmatch(to_re2(glob), name, re.DOTALL) is not None


def alternation(globs: Iterable[str]) -> str:
    """Return one RE2 expression that matches what any of the shell patterns does; none: a missing label."""
    return "|".join(map(to_re2, globs))


def _name(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[^\W_][\w .:/@+-]{0,99}(?<! )", value):
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
    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", value):
        raise Fault("is not a Prometheus label name", expected=expected, fix="rename the label")
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
            f"is not a pattern ({error})", expected=expected, fix="use ? for this character"
        ) from error
    return value


JobName = Annotated[str, Checked(_job)]
ReceiverName = Annotated[str, Checked(_name)]
LabelName = Annotated[str, Checked(_label)]
LabelValue = Annotated[str, Checked(_label_value)]
RunGlob = Annotated[str, Checked(_glob)]
