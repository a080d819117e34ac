from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

from exporter.runs.overview.charts import Mark
from exporter.runs.overview.health import GPU, healths
from exporter.runs.overview.models import Firing, Health, Range, RunAction, RunId
from exporter.runs.overview.overview import RunHistory, summary
from exporter.runs.overview.panels import BARE, Panels, Query
from exporter.runs.overview.prometheus import Answers, Past
from exporter.runs.serve.views import View
from tests.backtest.conftest import exploding_kl, wavering
from tests.runs.overview.conftest import Values, asked, limit, panels, run

LIMITS = {
    "RewardDrop": 0.45,
    "RewardCollapse": 0.4,
    "KLHigh": 0.549,
    "KLExplosion": 1.049,
    "LengthRunaway from its start, more truncated": 200.0,
    "LengthCollapse from the median": 25.0,
}
"""Where limits of the run lie at each step, as Prometheus says."""


def health(
    signal: str, records: Iterable[Values], said: Answers | None = None, drawn: Panels | None = None
) -> Health:
    """How a signal is after these records."""
    made = run(records)
    past = Past(
        (),
        {
            limit(name): ((made.progress.step - 20, at), (made.progress.step, at))
            for name, at in LIMITS.items()
        },
    )
    history = RunHistory(made.history.snapshot(), drawn or panels(), past)
    shown = summary(View("demo/x", made, "running", None))
    reported = healths(shown, drawn or panels(), said or known(), history.since)
    return next(each for each in reported if each.signal == signal)


def known(firing: Mapping[RunId, tuple[Firing, ...]] | None = None, **gpus: float) -> Answers:
    """What Prometheus says of the run, of its limits and of GPUs."""
    now: dict[Query, dict[RunId, float]] = {limit(name): {RunId("demo/x"): at} for name, at in LIMITS.items()}
    now |= {limit("GPUIdleWhileRunning"): {RunId("demo/x"): 0.05}}
    now |= {asked("mean of GPUs"): {RunId(""): at} for at in gpus.values()}
    return Answers(firing=firing or {}, now=now, answered=1.0)


def alert(name: str, severity: str, topic: str) -> Firing:
    return Firing(name, severity, topic, "The summary", "The description.", "stop it", "", "", 1.0, 0.0)


def firing(*alerts: Firing) -> Answers:
    return known(firing={RunId("demo/x"): alerts})


def test_the_signals_of_the_tutorials_are_all_there_in_their_order():
    shown = summary(View("x", run([{"reward": 1.0}]), "running", None))

    assert [each.title for each in healths(shown, panels(), Answers(), lambda *_: None)] == [
        "Reward",
        "KL",
        "Policy loss",
        "Response length",
        "GPU utilisation",
        "Entropy",
        "Gradient norm",
    ]


def test_a_calm_signal_is_within_its_band():
    kl = health("kl", exploding_kl(calm=20, high=0))

    assert kl.state == "ok"
    assert (kl.warning, kl.critical) == (Range(None, 0.549), Range(None, 1.049))
    assert kl.diagnosis == "Within the limits of KLHigh and KLExplosion."
    assert kl.since is None


def test_a_signal_out_of_its_band_says_by_how_much_since_when_and_what_is_healthy():
    kl = health("kl", exploding_kl(calm=20, high=10))

    assert kl.state == "critical"
    assert kl.since == 21
    assert kl.diagnosis.startswith("Smoothed 2.051, above ")
    assert "the limit of KLExplosion since step 21. How far the policy is from its reference" in kl.diagnosis
    assert "Healthy: small, slowly rising. Not healthy: doubling" in kl.diagnosis


def test_one_spike_is_not_judged_but_shown():
    kl = health("kl", [*exploding_kl(calm=20, high=0), {"reward": 0.5, "kl": 9.0}])

    assert (kl.state, kl.value) == ("ok", 9.0)
    assert kl.judged is not None
    assert kl.judged < 0.1


def test_the_reward_is_judged_by_its_mean():
    fell = [{"reward": value} for value in (*wavering(0.6, 40), *wavering(0.1, 20))]
    reward = health("reward", fell)
    fresh = health("reward", fell[:41])

    assert reward.state == "critical"
    assert "below" in reward.diagnosis
    assert reward.since is not None
    assert 41 <= reward.since <= 48
    assert fresh.state == "ok", "a mean over some ten steps has not followed after one"


def test_a_limit_that_holds_only_together_with_another_one_is_not_judged_alone():
    longer = [{"reward": value, "response_length": 100.0} for value in wavering(0.5, 20)]
    length = health("response_length", [*longer, *({**each, "response_length": 250.0} for each in longer)])

    assert length.state == "ok", "longer responses are fine as long as they are not cut off"
    assert length.warning.high is None
    assert length.warning.low is not None


def test_an_alert_that_fires_wins_over_the_value():
    said = firing(alert("KLExplosion", "critical", "kl"), alert("RewardDrop", "warning", "reward"))

    kl = health("kl", exploding_kl(calm=20, high=0), said)
    assert kl.state == "critical"
    assert kl.diagnosis == "KLExplosion: The summary. The description. First: stop it."
    assert health("reward", exploding_kl(calm=20, high=0), said).state == "warning"
    assert (
        health("kl", exploding_kl(calm=20, high=9), firing(alert("KLHigh", "warning", "kl"))).state
        == "warning"
    )


def test_an_alert_concerns_what_its_rule_looks_at_not_all_of_its_topic():
    other = firing(alert("KLTeacherHigh", "warning", "kl"))

    assert health("kl", exploding_kl(calm=20, high=0), other).state == "ok"


def test_what_is_not_logged_or_always_0_is_unknown():
    zero = health("kl", [{"reward": value, "kl": 0.0} for value in wavering(0.5, 20)])

    assert (zero.value, zero.state, zero.diagnosis) == (
        None,
        "unknown",
        "The trainer does not log this signal.",
    )
    assert health("grad_norm", exploding_kl()).state == "unknown"


def test_a_signal_without_a_limit_says_so():
    loss = health("policy_loss", [{"reward": 0.5, "actor/pg_loss": value} for value in wavering(0.01, 9)])

    assert loss.state == "unknown"
    assert loss.value is not None
    assert loss.diagnosis.startswith("No alert has a limit for this signal. The policy's loss, and the share")


def test_a_value_that_is_not_a_number_is_a_warning():
    broken = health(
        "grad_norm", [{"reward": 0.5, "actor/grad_norm": value} for value in (*wavering(1, 30), math.nan)]
    )

    assert broken.state == "warning"
    assert broken.diagnosis.startswith("The last value is not a finite number.")


def test_gpus_are_as_prometheus_knows_them():
    records = exploding_kl()
    busy, idle = known(gpus=0.8), known(gpus=0.01)
    reported = firing(alert("GPUIdleWhileRunning", "warning", "gpu"))

    assert health(GPU, records, busy).value == 0.8
    assert health(GPU, records, busy).state == "ok"
    assert health(GPU, records, busy).warning == Range(0.05, None)
    assert health(GPU, records, idle).state == "ok", "a run that is between two phases needs no GPU"
    assert health(GPU, records, reported).state == "warning"
    assert health(GPU, records).state == "unknown"
    assert health(GPU, records, Answers(problem="It is away.")).diagnosis == "It is away."


def test_without_a_file_of_panels_values_are_shown_without_a_judgement():
    kl = health("kl", exploding_kl(), drawn=BARE)

    assert (kl.state, kl.warning) == ("unknown", Range())
    assert kl.value is not None


def test_limits_that_prometheus_does_not_know_are_not_taken_for_none():
    away = health("kl", exploding_kl(), Answers(problem="It is away."))
    early = health("kl", exploding_kl(), Answers(answered=1.0))

    assert (away.state, away.warning) == ("unknown", Range())
    assert away.diagnosis.startswith("Its limits are unknown. It is away. How far the policy is")
    assert early.diagnosis.startswith("Its limits are not known yet. How far the policy is")


def test_no_step_is_named_from_before_prometheus_knew_a_limit():
    kl = health("kl", exploding_kl(calm=20, high=30))

    assert kl.since == 30, "the limit is known from this step on"


def test_charts_know_the_steps_of_marks_restarts_and_actions():
    made = run([{"reward": 0.5}] * 5)
    run([{"reward": 0.5}] * 3, first=3, into=made)
    past = Past((), {}, {100.0: 2.0, 200.0: 4.0})
    marks = (Mark(5, "mark: new data"),)
    action = RunAction("demo/x", "KLExplosion", "stop", "done", 150.0, False)
    (chart, *_) = RunHistory(made.history.snapshot(), panels(), past, marks).charts((), (action,))
    assert [(each.step, each.words) for each in chart.marks] == [
        (2, "action: stop (done)"),
        (3, "started again"),
        (5, "mark: new data"),
    ]
