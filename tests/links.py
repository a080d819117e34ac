"""The links of rules to dashboards, and what messages about ``ppo/gsm8k`` make of them."""

from __future__ import annotations

LINKS = [
    ("https://g/d/stepwatch-stack", "stepwatch-stack?"),
    ("https://g/a/d/stepwatch-nodes?var-machine=n1%3A9100", "stepwatch-nodes?var-machine=n1%3A9100&"),
    (
        "http://g/d/stepwatch-gpu?var-instance=b%201&var-cluster=night%201",
        "stepwatch-gpu?var-instance=b%201&var-cluster=night%201&",
    ),
    (
        "http://g/d/stepwatch-rollout?var-server=a&var-cluster=",
        "stepwatch-rollout?var-server=a&var-cluster=&",
    ),
    (
        "https://g/d/stepwatch-training?var-run=a%2Fd%2Fb&from=1&to=now",
        "stepwatch-training?var-run=a%2Fd%2Fb&",
    ),
    # Other people's dashboards are not in this Grafana, and what they wrote ends no link of ours.
    ("https://g/d/mine?var-run=b", "stepwatch-training?var-run=ppo%2Fgsm8k&"),
    ("https://g/d/stepwatch-stack/x", "stepwatch-training?var-run=ppo%2Fgsm8k&"),
    ('https://g/d/stepwatch-gpu?var-instance=a">b', "stepwatch-gpu?var-instance=a&"),
]
