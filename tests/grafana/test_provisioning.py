"""The files from which Grafana takes its datasources and its folder of dashboards."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from stepwatch.config import Config
from stepwatch.deploy.native.installed import grafana_environment
from stepwatch.deploy.native.state import State
from stepwatch.system.environment import CHECKOUT
from tests.grafana.conftest import FOLDER, Json, Render

HOME = "GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"
NEWS = "GF_NEWS_NEWS_FEED_ENABLED"
VARIABLES = {"STEPWATCH_PROMETHEUS_URL", "STEPWATCH_ALERTMANAGER_URL", "STEPWATCH_DASHBOARDS"}

PASSWORD = "$__file{/run/stepwatch/internal-password}"
"""What Grafana replaces by what is in the file."""


def read(render: Render, path: str, config: str = "") -> Json:
    document: Json = yaml.safe_load(render(config)[FOLDER / "provisioning" / path])
    return document


def test_datasources_have_the_uids_that_dashboards_hold_and_cannot_be_edited(render: Render) -> None:
    prometheus, alertmanager = read(render, "datasources/stepwatch.yaml")["datasources"]

    assert (prometheus["uid"], prometheus["type"], prometheus["isDefault"], prometheus["editable"]) == (
        *("stepwatch-prometheus", "prometheus", True, False),
    )
    assert (alertmanager["uid"], alertmanager["type"], alertmanager["editable"]) == (
        *("stepwatch-alertmanager", "alertmanager", False),
    )
    assert alertmanager["jsonData"]["implementation"] == "prometheus"
    assert prometheus["jsonData"]["alertmanagerUid"] == alertmanager["uid"]


def test_datasources_sign_in_with_the_password_that_a_file_holds(render: Render) -> None:
    for source in read(render, "datasources/stepwatch.yaml")["datasources"]:
        assert (source["basicAuth"], source["basicAuthUser"]) == (True, "internal")
        assert source["secureJsonData"] == {"basicAuthPassword": PASSWORD}


def test_panels_ask_for_no_finer_steps_than_runs_are_scraped(render: Render) -> None:
    prometheus, _ = read(render, "datasources/stepwatch.yaml", "intervals: {runs: 7s}")["datasources"]

    assert prometheus["jsonData"]["timeInterval"] == "7s"


def test_dashboards_come_from_a_folder_and_cannot_be_saved_over(render: Render) -> None:
    (provider,) = read(render, "dashboards/stepwatch.yaml")["providers"]

    assert (provider["type"], provider["folder"], provider["allowUiUpdates"]) == ("file", "Stepwatch", False)
    assert provider["options"] == {"path": "${STEPWATCH_DASHBOARDS}"}


def test_grafana_is_given_nothing_to_fill_in_but_our_variables_and_a_file(render: Render) -> None:
    """Grafana replaces every `$` in these files, so one that is meant as it is would be lost."""
    texts = [data.decode() for path, data in render().items() if FOLDER / "provisioning" in path.parents]
    settings = ["\n".join(line for line in text.splitlines() if "#" not in line) for text in texts]

    assert set(re.findall(r"\$\{(\w+)\}", "".join(settings))) == VARIABLES
    assert "".join(settings).replace(PASSWORD, "").count("$") == len(VARIABLES)


def test_runs_is_the_home_page_in_containers_and_without(tmp_path: Path) -> None:
    compose = yaml.safe_load((CHECKOUT / "compose.yaml").read_text())["services"]["grafana"]
    native = grafana_environment(Config(), State(tmp_path), tmp_path)

    assert compose["environment"][HOME] == f"{compose['environment']['STEPWATCH_DASHBOARDS']}/runs.json"
    assert native[HOME] == f"{native['STEPWATCH_DASHBOARDS']}/runs.json"


def test_the_news_feed_is_off_in_containers_and_without(tmp_path: Path) -> None:
    """Without the internet, the home page would show its error."""
    compose = yaml.safe_load((CHECKOUT / "compose.yaml").read_text())["services"]["grafana"]["environment"]

    assert (compose[NEWS], grafana_environment(Config(), State(tmp_path), tmp_path)[NEWS]) == (
        "false",
        "false",
    )


def test_each_folder_that_grafana_looks_for_is_there(render: Render) -> None:
    """It logs an error about each that is missing."""
    folders = {path.parent.name for path in render() if FOLDER / "provisioning" in path.parents}

    assert folders >= {"alerting", "dashboards", "datasources", "plugins"}
