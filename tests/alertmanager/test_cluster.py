"""What 64 nodes say of one fault is one message, and a lost node speaks for what it ran."""

from __future__ import annotations

import pytest

from tests.alertmanager.conftest import Render
from tests.alertmanager.route import QUICK, Route, alert
from tests.real import AlertmanagerServer, WebhookSink

pytestmark = pytest.mark.e2e


def test_alerts_of_all_gpus_are_one_message_and_a_lost_node_speaks_for_its_parts(render: Render) -> None:
    hot = [
        alert("GPUHot", "", "warning", "gpu", instance=f"node-{node}:9411", gpu=str(gpu))
        for node in range(64)
        for gpu in range(8)
    ]
    with WebhookSink() as sink:
        folder = render(f"receivers: [{{name: oncall, webhook: {{url: '{sink.url}'}}}}]\n{QUICK}")
        with AlertmanagerServer("0.31", folder) as server:
            Route(server, folder, sink).settle(
                *hot,
                *(alert("NodeLost", topic="stack", node=f"node-{node}") for node in range(3)),
                alert("RayNodeLost", "", "warning", "rollout", job="ray", node="node-1"),
                alert("RayNodeLost", "", "warning", "rollout", job="ray", node="node-7"),
                alert("GPUThermalThrottle", "", "warning", "gpu", instance="a:9411", gpu="0"),
                alert("Straggler", "", "warning", "gpu", instance="a:9411", gpu="0"),
                alert("Straggler", "", "warning", "gpu", instance="a:9411", gpu="1"),
            )
    sent = {
        name: [
            message for message in sink.received if message.payload["groupLabels"].get("alertname") == name
        ]
        for name in ("GPUHot", "NodeLost", "RayNodeLost", "Straggler")
    }
    assert {name: sum(len(message.alerts) for message in found) for name, found in sent.items()} == {
        "GPUHot": 512,
        "NodeLost": 3,
        "RayNodeLost": 1,
        "Straggler": 1,
    }
    assert len(sent["GPUHot"]) == 1
    assert sent["RayNodeLost"][0].alerts[0]["labels"]["node"] == "node-7"
    assert sent["Straggler"][0].alerts[0]["labels"]["gpu"] == "1"
