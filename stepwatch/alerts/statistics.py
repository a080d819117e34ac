"""The statistics of a run's signals that alerts compare, as the run exporter serves them."""

from __future__ import annotations

from stepwatch.alerts.expression import Expression, Limit, Raw, Series, any_of, size

REWARD = "reward"

SUFFERS_STDDEVS = 2
"""How many standard deviations a smoothed reward must be below its best to have suffered: five (alpha
0.3) to nine times (0.1) what chance does to that mean. For a batch of 8, a share of the best is chance."""

SATURATED = 0.03
"""The range of 10 rewards, as a share of the best, that is left at a ceiling. A batch of 512 ranges over
14 % with half of its answers right, over 1.4 % with 99 % of them."""


def metric(name: str, **labels: str) -> Expression:
    """Return a metric of the runs."""
    return Series(name, labels)


def last(name: str, **labels: str) -> Expression:
    """Return a metric of the runs as it was within 10 minutes: a lost scrape resolves nothing."""
    return Series(name, labels, over=("last_over_time", "10m"))


def increased(name: str) -> Expression:
    """Return by how much a counter of the runs rose within an hour: a whole number, unlike ``increase``."""
    return metric(name) - Series(name, over=("min_over_time", "1h"))


def since_last_step() -> Expression:
    """Return the seconds since the last step was logged."""
    return Raw("time()") - metric("rl_last_step_timestamp_seconds")


def over(function: str, signal: str, steps: int) -> Expression:
    """Return ``min``, ``max``, ``mean``, ``median``, ``range``, ``level`` or ``spread`` of the last steps."""
    return metric(f"rl_{function}_over_steps", signal=signal, steps=str(steps))


def smoothed(signal: str, alpha: str = "0.1") -> Expression:
    """Return the exponential mean of a signal."""
    return metric("rl_ewma", signal=signal, alpha=alpha)


def start(signal: str) -> Expression:
    """Return the median of the first values."""
    return metric("rl_start", signal=signal)


def best(signal: str = REWARD) -> Expression:
    """Return the highest that the smoothed curve has been."""
    return metric("rl_best", signal=signal)


def peak(signal: str) -> Expression:
    """Return the highest that the smoothed curve of a signal without a good side has been."""
    return metric("rl_peak", signal=signal)


def stddev(signal: str = REWARD) -> Expression:
    """Return the run's own standard deviation from step to step."""
    return metric("rl_noise", signal=signal)


def drawdown(alpha: str) -> Expression:
    """Return how far the smoothed reward is below its best."""
    return metric("rl_drawdown", signal=REWARD, alpha=alpha)


def least_drawdown(alpha: str, steps: int) -> Expression:
    """Return the smallest drawdown of the last steps."""
    return metric("rl_drawdown_min_over_steps", signal=REWARD, alpha=alpha, steps=str(steps))


def lost(ratio: str, alpha: str = "0.1") -> Expression:
    """Return where the reward is below its best by more than this share of it; the key of the share."""
    return drawdown(alpha) > Limit(ratio) * size(best())


def suffers(ratio: str, alpha: str = "0.1") -> Expression:
    """Return the same where it is also more than chance makes of it."""
    return lost(ratio, alpha) & (drawdown(alpha) > SUFFERS_STDDEVS * stddev())


def solved(ratio: str) -> Expression:
    """Return where the reward is near the largest of the samples, or at a level that it does not leave."""
    highest = over("median", "reward_max", 64)
    near = (smoothed(REWARD) > Limit(ratio) * highest) & (highest > 0)
    still = over("range", REWARD, 10) < SATURATED * best()
    return near | still.unless(best() - smoothed(REWARD) > 0.1 * best())


def is_in(*states: str) -> Expression:
    """Return where the run is in one of these states."""
    return any_of(metric("rl_run_state", state=state).equals(1) for state in states)
