"""What Hugging Face trainers print: dicts without a step, between tqdm's bars."""

from __future__ import annotations

import ast
import io
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.runs.formats.trl_console import TrlConsole
from exporter.runs.signals.record import Event, Record, TotalSteps, number
from tests.runs.conftest import Watching
from tests.runs.lines import bare
from tests.runs.trl_trainer import Training

BLANK = " " * 40
SUMMARY = "{'train_runtime': 915.6, 'train_loss': 0.0048, 'reward': 0.7, 'kl': 2.5, 'epoch': 0.05}"


def logged(reward: float = 0.5, epoch: float = 0.1, **more: object) -> str:
    """A record as transformers 4 prints it."""
    return repr({"loss": 0.1, "reward": reward, **more, "epoch": epoch})


def evaluated(loss: float) -> str:
    return repr({"eval_loss": loss, "eval_reward": 0.25, "epoch": 0.1})


def bar(step: int, total: int, taken: str = "00:41<24:12") -> str:
    return f"\r{100 * step // total:3}%|{'█' * (10 * step // total):10}| {step}/{total} [{taken},  3.43s/it]"


def start(total: int) -> str:
    return f"\r  0%|          | 0/{total} [00:00<?, ?it/s]"


def above(bar_: str, printed: str) -> str:
    """What a terminal gets when something is printed above a bar."""
    return f"{bar_}\r{BLANK}\r{printed}\n{bar_}"


def events(text: str) -> list[Event]:
    source = TrlConsole()
    found = [event for line in bare(*text.split("\n")) for event in source.parse(line)]
    return found + list(source.flush())


def records(text: str) -> list[Record]:
    return [event for event in events(text) if isinstance(event, Record)]


def as_texts(line: str) -> dict[str, str]:
    return {key: str(value) for key, value in ast.literal_eval(line).items()}


def steps(text: str) -> list[int]:
    return [record.step for record in records(text)]


def rewards(text: str) -> list[float | None]:
    return [number(record.values["reward"]) for record in records(text)]


# what a record looks like


@pytest.mark.parametrize(
    "line",
    [
        f"{bar(12, 435)}{logged()}",
        f"{bar(12, 435)}\r{BLANK}\r{logged()}{bar(13, 435)}",
        f"\x1b[36m(Trainer pid=4)\x1b[0m {logged()}",
        f"[default0]:{logged()}",
        f"trainer-1  | {logged()}",
        f"\x1b[32m{logged()}\x1b[0m\r",
    ],
)
def test_a_record_is_read_whatever_stands_around_it(line: str) -> None:
    assert rewards(line) == [0.5]
    assert TrlConsole().recognises(*bare(line))


def test_a_record_that_a_terminal_broke_is_one() -> None:
    line = logged(0.25, clip_ratio=0.5)
    for at in range(1, len(line) - 1):
        assert rewards(f"{line[:at]}\n{line[at:]}") == [0.25], line[:at]


# steps


@pytest.mark.parametrize(
    "other",
    [
        "\rMap:  50%|█████     | 90/100 [00:00<00:00, 60.0 examples/s]",
        "\rLoading checkpoint shards: 100%|██████████| 4/4 [00:02<00:00,  1.40s/it]",
        f"{start(7)}{bar(3, 7)}{bar(7, 7)}\r{BLANK}\r",
        f"{start(1000)}{bar(30, 1000)}{bar(1000, 1000)}",
    ],
)
def test_other_bars_do_not_disturb(other: str) -> None:
    """Bars of downloads, of maps and of evaluations have other totals."""
    text = other + start(50) + above(bar(5, 50), logged()) + other + above(bar(10, 50), logged())

    assert steps(text) == [5, 10]
    assert TotalSteps(50) in events(text)


def flushed(marks: Iterable[int], count: int, total: int = 90) -> str:
    """Bars that were cleared at these steps, and then as many records."""
    bars = (f"{bar(step, total)}\r{BLANK}\r\r{bar(step, total)}" for step in marks)
    return "".join(bars) + count * f"{logged()}\n"


def at(step: int, total: int = 50, **more: object) -> str:
    """A record above the bar of its step."""
    return above(bar(step, total), logged(**more))  # type: ignore[arg-type]


TWICE = f"{logged()}\n{logged()}"
SETTINGS = ("logging_steps=10,", "  'logging_steps': 10,", "train.py --logging_steps 10", "logging_steps: 10")
NONE = ("", "logging_steps=0.1,", "logging_steps=0,", "logging_steps=-1")
EVALUATION, SHORTER = (f"{start(n)}{bar(n, n)}\r{BLANK}\r" for n in (1000, 7))
FALLS = [logged(num_tokens=tokens) for tokens in (553176.0, 560000.0, 1558.0, 2000.0)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (flushed([10, 20, 30], 3) + flushed([70, 80, 90], 6), list(range(10, 91, 10))),  # lost bars
        (at(5) + above(bar(7, 50), "2+2 is 4\nand") + at(10), [5, 10]),
        # bars that were never cleared are a floor: they may be late, not ahead
        (f"{start(20)}\n{5 * (logged() + chr(10))}{bar(9, 20)}\n{TWICE}", [1, 2, 3, 4, 5, 9, 10]),
        (f"{start(20)}{bar(7, 20)}\n{TWICE}", [7, 8]),
        # records that were lost leave a gap where each record comes at once
        (start(90) + "".join(at(step, 90) for step in (10, 20, 30, 70)), [10, 20, 30, 70]),
        # without a bar the trainer's setting counts, and more than what was seen; else records are counted
        *((f"{text}\n{TWICE}", [10, 20]) for text in SETTINGS),
        *((f"{text}\n{TWICE}", [1, 2]) for text in NONE),
        (f"logging_steps=10,\n{flushed([1, 10], 0)}{bar(30, 90)}" + 3 * f"{logged()}\n", [1, 10, 20]),
        # an evaluation before the first step is step 0, any other belongs to the record before
        (start(50) + EVALUATION + above(start(50), evaluated(0.5)) + at(5), [0, 5]),
        (start(50) + at(5) + above(bar(8, 50), evaluated(0.4)) + at(10), [5, 5, 10]),
        # attempts: a counter that falls starts another one, whose evaluations are its own
        ("\n".join(FALLS), [1, 2, 1, 2]),
        ("\n".join([logged(epoch=0.5), logged(epoch=0.5), logged(epoch=0.01)]), [1, 2, 1]),
        (
            "".join(at(step, num_tokens=1000 * step) + SHORTER for step in (10, 20, 30, 40))
            + f"\n{start(30)}{at(10, 30, num_tokens=10)}",
            [10, 20, 30, 40, 10],
        ),
    ],
)  # fmt: skip
def test_the_step_of_a_record_is_that_at_which_it_was_logged(text: str, expected: list[int]) -> None:
    assert steps(text) == expected


# bars that do not move with the records


def record(number: int, of: int = 200, gradient: float = 0.5) -> str:
    """The record after so many of all records of one epoch."""
    return f"{logged(number / 7, round(number / of, 4), grad_norm=gradient * number)}\n"


FIRST_BARS = f"{start(1)}{bar(1, 1)}\n{start(5)}{bar(0, 5)}\n"
RANKS = [record(number) for number in range(1, 31)] + [f"{logged(1.0, 0.9, grad_norm=0.0)}\n"] * 20


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a total of another bar, until the training's is drawn
        (FIRST_BARS + "".join(f"{record(at)}{bar(at, 50)}\n" for at in range(1, 51)), (50, 50, 50)),
        # another bar is all there is
        (FIRST_BARS + "".join(map(record, range(1, 51))), (50, 50, None)),
        # bars in lines of their own, behind those of another training
        (
            "".join(f"{bar(10 * at, 170)}\n{record(at, 17)}" for at in range(1, 18))
            + f"{SUMMARY}\n"
            + "".join(f"{bar(10 * at, 2140)}\n{record(at, 214)}" for at in range(1, 215)),
            (214, 2140, 2140),
        ),
        # a bar in one line before all records, as W&B captures it, or drawn ahead of them
        (
            f"{start(2140)}Loading\n{bar(175, 2140)}\n" + "".join(record(at, 214) for at in range(1, 18)),
            (17, 17, None),
        ),
        (
            "".join((at % 25 == 1) * f"{bar(at + 24, 200)}\n" + record(at) for at in range(1, 201)),
            (200, 200, None),
        ),
        # a bar that was cleared once, after some records that arrive later
        (above(bar(175, 2140), "") + "".join(record(at, 214) for at in range(1, 215)), (214, 388, 2140)),
        # a bar that is drawn every 25 steps, where records come every 5; some are missing
        (
            "".join((at % 5 == 0) * f"{bar(5 * at, 200)}\n" + record(at, 40) for at in range(1, 36))
            + record(39, 40),
            (36, 195, 200),
        ),
        # four ranks print each record, and in the end a dead one, which counts once; one rank does
        (f"{start(50)}\n" + "".join(4 * line for line in RANKS), (31, 50, None)),
        (f"{start(50)}\n" + "".join(RANKS), (31, 50, None)),
    ],
    ids=["first", "other", "two trainings", "above", "ahead", "once", "late", "ranks", "one rank"],
)
def test_steps_and_totals_where_bars_do_not_move_with_the_records(
    folder: Path, watched: Watching, text: str, expected: tuple[int | None, ...]
) -> None:
    (folder / "a.log").write_text(text)
    page = watched().look()

    names = ("rl_records_total", "rl_step", "rl_total_steps")
    assert tuple(page.value(name, run="a") for name in names) == expected


# any mixture


parts = st.sampled_from(
    [
        start(20),
        bar(3, 20),
        bar(20, 20),
        start(7),
        "\r" + BLANK + "\r",
        logged(),
        evaluated(1.0),
        SUMMARY,
        "\n",
    ]
) | st.text(max_size=10)


@given(st.lists(parts, max_size=30), st.integers(0, 200))
def test_any_mixture_has_steps_that_rise_within_an_attempt(mixture: list[str], cut: int) -> None:
    """Attempts begin where a bar restarts or behind a summary: the same record never goes back alone."""
    found = [
        event
        for event in events("".join(mixture)[cut:])
        if isinstance(event, Record) and "loss" in event.values
    ]
    backwards = sum(a.step >= b.step for a, b in pairwise(found))

    assert backwards <= mixture.count(start(20)) + mixture.count(start(7)) + mixture.count(SUMMARY)


# resumes: the bars that the real tqdm draws


def test_a_record_whose_bar_shows_an_old_step_waits_until_the_bar_is_drawn_again() -> None:
    source = TrlConsole()
    record = f"{start(160)}{bar(101, 160)}\r{BLANK}\r{logged()}"

    assert list(source.parse(record.encode())) == []
    assert list(source.parse(bar(105, 160).encode()))[-1] == Record(105, as_texts(logged()))


def test_a_record_at_the_step_that_its_bar_shows_does_not_wait() -> None:
    text = start(160) + "".join(above(bar(step, 160), logged()) for step in (10, 20, 30))
    source = TrlConsole()
    for line in text.split("\n"):
        list(source.parse(line.encode()))

    (found,) = source.parse(f"{bar(40, 160)}\r{BLANK}\r{logged()}".encode())
    assert found == Record(40, as_texts(logged()))


SECONDS = st.lists(st.sampled_from([0.004, 0.03, 0.2, 0.9, 4.0, 40.0, 700.0]), min_size=1, max_size=5)


@st.composite
def schedules(draw: st.DrawFn) -> list[Training]:
    """A training that is killed or finishes, and resumed from a checkpoint, perhaps with more steps."""
    steps, every = draw(st.integers(1, 60)), draw(st.integers(1, 12))
    more = {
        "logging_steps": every,
        "logging_first_step": draw(st.booleans()),
        "eval_steps": draw(st.none() | st.integers(1, 20)),
        "seconds": draw(SECONDS),
        "buffer": draw(st.sampled_from([0, 0, 200, 1000])),
    }
    first = Training(steps, killed_at=draw(st.none() | st.integers(1, steps)), **more)
    last = first.killed_at or steps
    checkpoint = draw(st.integers(1, last))
    again = Training(steps + draw(st.integers(0, 60)), checkpoint=checkpoint, **more)
    return [first, again] if again.max_steps > checkpoint else [first]


def write(trainings: list[Training]) -> str:
    log = io.StringIO()
    for training in trainings:
        training.write(log)
    return log.getvalue()


def of_training(found: list[Event]) -> list[int]:
    return [event.step for event in found if isinstance(event, Record) and "loss" in event.values]


def as_it_grows(text: str, pauses: Iterable[int]) -> list[Event]:
    """The events where the last line is read at each pause as if it were whole, and again once it is."""
    source, found, read = TrlConsole(), list[Event](), 0
    for end in (*pauses, len(text)):
        *lines, rest = text[read:end].split("\n")
        for line in lines:
            found += source.parse(line.encode())
        read = end - len(rest)
        found += [*source.flush(), *source.parse(rest.encode())]
    return found


@pytest.mark.slow
@given(schedules(), st.data())
def test_the_steps_of_a_resumed_training_are_those_at_which_it_logged(
    trainings: list[Training], data: st.DataObject
) -> None:
    text = write(trainings)
    true = [step for training in trainings for step in training.logged]

    assert of_training(events(text)) == true
    pauses = trainings[0].pauses
    assert of_training(as_it_grows(text, sorted(data.draw(st.sets(st.sampled_from(pauses)))))) == true
