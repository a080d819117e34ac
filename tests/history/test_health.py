from __future__ import annotations

import math
from collections.abc import Iterable

from exporter.runs.history.charts import Draughtsman
from exporter.runs.history.glance import Glance
from exporter.runs.history.health import GPU, healths
from exporter.runs.history.panels import BARE, Panels
from exporter.runs.history.prometheus import NOTHING, Said
from exporter.runs.history.shapes import Firing, Health, Range
from exporter.runs.run import Run
from exporter.runs.views import View
from tests.backtest.conftest import exploding_kl, wavering
from tests.history.conftest import Values, panels, run


def health(
    signal: str, records: Iterable[Values], said: Said | None = None, drawn: Panels | None = None
) -> Health:
    """How a signal is after these records."""
    return of_run(signal, run(records), said, drawn)


def of_run(signal: str, made: Run, said: Said | None = None, drawn: Panels | None = None) -> Health:
    found = (drawn or panels()).of_run("demo/x")
    draughtsman = Draughtsman(made.history.kept("demo/x", made.statistics), found, NOTHING)
    glance = Glance.of(View("demo/x", made, "running", None))
    told = healths(glance, found, said or Said(), draughtsman.since)
    return next(each for each in told if each.signal == signal)


def alert(name: str, severity: str, topic: str) -> Firing:
    return Firing(name, severity, topic, "The summary.", "The description.", "", "", 1.0, 0.0)


def firing(*alerts: Firing) -> Said:
    return Said(firing={"demo/x": alerts}, answered=1.0)


def test_the_signals_of_the_tutorials_are_all_there_in_their_order():
    glance = Glance.of(View("x", run([{"reward": 1.0}]), "running", None))

    assert [each.title for each in healths(glance, panels(), Said(), lambda *_: None)] == [
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
    # start 0.05, and the greater of 0.5 and 3 noises, of 1 and 6 noises
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
    assert kl.diagnosis == "KLExplosion: The summary. The description."
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

    assert (zero.value, zero.state, zero.diagnosis) == (None, "unknown", "The trainer does not log it.")
    assert health("grad_norm", exploding_kl()).state == "unknown"


def test_a_signal_without_a_limit_says_so():
    loss = health("policy_loss", [{"reward": 0.5, "actor/pg_loss": value} for value in wavering(0.01, 9)])

    assert loss.state == "unknown"
    assert loss.value is not None
    assert loss.diagnosis.startswith("No alert has a limit for it. The policy's loss, and the share")


def test_a_value_that_is_no_number_is_a_warning():
    broken = health(
        "grad_norm", [{"reward": 0.5, "actor/grad_norm": value} for value in (*wavering(1, 30), math.nan)]
    )

    assert broken.state == "warning"
    assert broken.diagnosis.startswith("The last value is no finite number.")


def test_gpus_are_as_prometheus_knows_them():
    records = exploding_kl()
    known = Said(now={"mean of GPUs": 0.8}, answered=1.0)
    idle = Said(now={"mean of GPUs": 0.01}, answered=1.0)
    told = firing(alert("GPUIdleWhileRunning", "warning", "gpu"))

    assert health(GPU, records, known).value == 0.8
    assert health(GPU, records, known).state == "ok"
    assert health(GPU, records, known).warning == Range(0.05, None)
    assert health(GPU, records, idle).state == "ok", "a run that is between two phases needs no GPU"
    assert health(GPU, records, told).state == "warning"
    assert health(GPU, records).state == "unknown"
    assert health(GPU, records, Said(problem="It is away.")).diagnosis == "It is away."


def test_without_a_file_of_panels_values_are_shown_without_a_judgement():
    kl = health("kl", exploding_kl(), drawn=BARE)

    assert (kl.state, kl.warning) == ("unknown", Range())
    assert kl.value is not None


def test_after_a_mark_the_run_is_judged_by_its_new_level():
    made = run(exploding_kl(calm=20, high=10))
    made.mark(0.0, "a wanted change")
    run([{"reward": 0.5, "kl": value} for value in wavering(2.05, 20, 0.001)], 31, into=made)

    assert of_run("kl", made).state == "ok"
    assert of_run("kl", made).warning.high is not None
    assert of_run("kl", made).warning.high > 2.5
