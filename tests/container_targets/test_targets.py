"""The file of targets, from any containers."""

from __future__ import annotations

import json

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stepwatch.deploy.container_targets import Container, FromMachine, found

ANYWHERE = FromMachine({"bridge"})


def container(name: str, **labels: str) -> Container:
    ours = {f"stepwatch.{key}": text for key, text in labels.items()}
    return Container(
        name, "running", ours, on_host=False, addresses={"bridge": "172.17.0.2"}, ports=(), mounts={}
    )


# The tables of all characters are made at the first one, which takes a second.
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from(["scrape", "path", "job", "role", "scheme"]),
        st.one_of(st.text(), st.integers().map(str), st.sampled_from(["80", "/a", "rollout", "٣", "080"])),
    )
)
def test_whatever_its_labels_say_a_container_is_a_target_or_reported_or_did_not_ask(
    labels: dict[str, str],
) -> None:
    result = found([container("web", **labels), container("other", scrape="80")], ANYWHERE)

    names = [target.container for target in result.targets]
    assert "other" in names
    assert ("web" in names) + bool(result.faults) == ("scrape" in labels)
    assert all(fault.startswith("Container web: label stepwatch.") for fault in result.faults)
    assert len(json.loads(result.file)) == len(names)
