import pytest

from stepwatch.config import load


@pytest.fixture(name="loaded")
def _loaded(tmp_path):
    def loaded(text):
        (tmp_path / "config.yaml").write_text(text)
        return load(tmp_path / "config.yaml")

    return loaded


def test_equal_limits_of_both_levels_are_no_contradiction(loaded):
    assert loaded("alerts: {NonFinite: {warning: {steps: 3}}}").alerts.NonFinite.warning.steps == 3


def test_a_limit_that_one_level_lacks_contradicts_nothing(loaded):
    assert loaded("alerts: {KL: {warning: {above: 15}}}").alerts.KL.warning.above == 15


def test_whole_numbers_stay_whole(loaded):
    config = loaded("alerts: {GradNormHigh: {warning: {times_level: 5}}}")

    assert str(config.alerts.GradNormHigh.warning.times_level) == "5"


def test_relative_paths_are_meant_from_the_folder_of_the_file(loaded, tmp_path):
    (tmp_path / "token").write_text("x")
    (tmp_path / "url").write_text("https://chat.example/x\n")
    config = loaded(
        "runs: {path: logs}\n"
        "scrape: [{job: a, files: [sd/*.json], bearer_token_file: token}]\n"
        "receivers: [{name: r, webhook: {url_file: url, credentials_file: ./token}}]\n"
    )

    assert config.runs.path == tmp_path / "logs"
    assert config.scrape[0].files == (tmp_path / "sd/*.json",)
    assert config.scrape[0].bearer_token_file == tmp_path / "token"
    assert config.receivers[0].webhook.url_file == tmp_path / "url"
    assert config.receivers[0].webhook.credentials_file == tmp_path / "token"
    assert loaded("").runs.path == tmp_path / "runs"


def test_absolute_paths_and_home_folders_are_taken_as_they_are(loaded, monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")

    assert str(loaded("runs: {path: /data/runs}").runs.path) == "/data/runs"
    assert str(loaded("runs: {path: ~/runs}").runs.path) == "/home/someone/runs"


@pytest.mark.parametrize(
    ("listen", "address"),
    [
        ("127.0.0.1", "127.0.0.1:9410"),
        ("0.0.0.0", "127.0.0.1:9410"),
        ('"::1"', "[::1]:9410"),
        ("10.1.2.3", "10.1.2.3:9410"),
        ('"::"', "127.0.0.1:9410"),
    ],
)
def test_a_part_is_reached_at_the_address_it_listens_on(loaded, listen, address):
    assert loaded(f"listen: {listen}").address("exporter") == address


def test_links_lead_to_the_parts_unless_they_are_set(loaded):
    config = loaded("ports: {grafana: 3001}\nlinks: {prometheus: 'https://prom.example/p/'}")

    assert config.link("grafana") == "http://127.0.0.1:3001"
    assert config.link("prometheus") == "https://prom.example/p"


def test_a_webhook_url_may_hold_what_is_not_a_secret(loaded):
    text = "receivers: [{name: a, webhook: {url: 'http://127.0.0.1:5001/hooks/team-of-alerting?team=rl'}}]"

    assert loaded(text).receivers[0].webhook.url == "http://127.0.0.1:5001/hooks/team-of-alerting?team=rl"


@pytest.mark.parametrize(
    ("smarthost", "tls", "starttls"),
    [
        ("mail.example:587", "true", True),
        ("mail.example:25", "false", False),
        ("mail.example:465", "true", False),
        ("mail.example:4465", "true", True),
    ],
)
def test_encryption_is_asked_for_but_where_it_is_there_from_the_first_byte(loaded, smarthost, tls, starttls):
    mail = f"{{to: [a@b.example], from: c@d.example, smarthost: '{smarthost}', tls: {tls}}}"

    assert loaded(f"receivers: [{{name: a, mail: {mail}}}]").receivers[0].integration.starttls is starttls


@pytest.mark.parametrize("address", ["a@b", "first.last+tag@mail.example.org", "o'brien@x-y.example"])
def test_mail_addresses_of_every_common_form_are_taken(loaded, address):
    mail = f'{{to: ["{address}"], from: "{address}", smarthost: "h:25"}}'

    assert loaded(f"receivers: [{{name: a, mail: {mail}}}]").receivers[0].integration.to == (address,)
