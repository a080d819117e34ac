"""`test-alert` by Alertmanager's own integrations: what vendors answer is what it says."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from stepwatch.config.deployment import OnThisMachine
from stepwatch.render.generator import generate
from tests.real import AlertmanagerServer, alertmanager, free_port
from tests.real.answering import Answering
from tests.real.mailbox import Mailbox
from tests.testalert.conftest import Bench

pytestmark = pytest.mark.e2e

VENDORS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("vendors.yaml").read_text())
ANSWERS = ("good", "refusing")
TOKEN = "123456:s3cret-token"


@pytest.fixture(scope="module", name="ended")
def _ended(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, tuple[int, list[str]]]]:
    """Every vendor with every answer, some at a time."""
    folder, port = tmp_path_factory.mktemp("vendors"), free_port()
    tool = alertmanager("0.31")
    with ExitStack() as stack:
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        patch.setenv("STEPWATCH_ALERTMANAGER", str(tool.server))
        patch.setenv("STEPWATCH_AMTOOL", str(tool.tool))
        (folder / "token").write_text(TOKEN)
        lines = []
        names = [f"{vendor}-{kind}" for vendor in VENDORS for kind in ANSWERS]
        for name in names:
            vendor, _, kind = name.partition("-")
            url = stack.enter_context(Answering(*VENDORS[vendor][kind])).url
            (folder / f"{name}-url").write_text(f"{url}/hook/s3cretpath")
            lines.append(f"- name: {name}\n  {VENDORS[vendor]['block'].format(name=name, url=url)}")
        text = f"ports: {{alertmanager: {port}}}\nreceivers:\n" + "\n".join(lines)
        (folder / "config.yaml").write_text(text)
        generate(folder / "config.yaml", folder, place=OnThisMachine)
        server = AlertmanagerServer(
            "0.31",
            folder / "alertmanager/generated",
            port=port,
            options=("--enable-feature=receiver-name-in-metrics",),
        )
        env = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        server.env = {**env, "AWS_ACCESS_KEY_ID": "AKID", "AWS_SECRET_ACCESS_KEY": TOKEN}
        stack.enter_context(server)
        idle = stack.enter_context(Answering()), stack.enter_context(Answering())
        bench = Bench(folder, server, *idle, stack.enter_context(Mailbox()))
        with ThreadPoolExecutor(8) as pool:  # more at once run into the limits of a busy machine
            yield dict(zip(names, pool.map(bench.test, names), strict=True))


@pytest.mark.parametrize("vendor", VENDORS)
def test_a_vendor_that_takes_the_message_is_said_to_have_got_it(
    vendor: str, ended: dict[str, tuple[int, list[str]]]
) -> None:
    code, said = ended[f"{vendor}-good"]

    assert code == 0, said
    assert "Alertmanager delivered the test message by " in said[-1]


@pytest.mark.parametrize("vendor", VENDORS)
def test_what_the_vendor_answers_is_said_with_the_fix_and_without_the_secret(
    vendor: str, ended: dict[str, tuple[int, list[str]]]
) -> None:
    code, said = ended[f"{vendor}-refusing"]
    assert code == 1
    assert re.search(VENDORS[vendor]["says"], said[-1]), said
    assert VENDORS[vendor]["fix"] in said[-1]

    assert "s3cret" not in str(ended)
