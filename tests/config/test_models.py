import pytest
from pydantic import ValidationError

from stepwatch.config import Config, load
from stepwatch.schema.scalars import Duration


@pytest.fixture(name="loaded")
def _loaded(tmp_path):
    def loaded(text):
        (tmp_path / "config.yaml").write_text(text)
        return load(tmp_path / "config.yaml")

    return loaded


def shown(config, block):
    """The variants of a block as (first limit, only, without)."""
    return [
        (variant.limits.warning.stddevs, variant.only, variant.without) for variant in config.variants(block)
    ]


def test_a_configuration_cannot_be_changed():
    with pytest.raises(ValidationError, match="frozen"):
        Config().alerts.KL.warning.stddevs = 5


def test_without_overrides_a_block_has_one_variant_for_all_runs(loaded):
    assert shown(loaded(""), "KL") == [(3, None, ())]


def test_the_first_override_that_fits_wins_and_the_base_takes_the_rest(loaded):
    config = loaded(
        "overrides:\n"
        "  - {runs: 'a*', alerts: {KL: {warning: {stddevs: 4}}}}\n"
        "  - {runs: 'b*', alerts: {Reward: {warning: {stddevs: 3}}}}\n"
        "  - {runs: 'c*', alerts: {KL: {warning: {stddevs: 5}}}}\n"
    )

    assert shown(config, "KL") == [(4, "a*", ()), (5, "c*", ("a*",)), (3, None, ("a*", "c*"))]
    assert shown(config, "Reward") == [(3, "b*", ()), (2.5, None, ("b*",))]


def test_an_override_leaves_the_other_limits_of_the_block_as_they_are(loaded):
    config = loaded(
        "alerts: {KL: {critical: {above: 15}}}\n"
        "overrides: [{runs: a, alerts: {KL: {critical: {stddevs: 9}}}}]\n"
    )

    critical = config.variants("KL")[0].limits.critical

    assert (critical.above_start, critical.stddevs, critical.above) == (1, 9, 15)


def test_runs_for_which_an_alert_is_off_are_still_kept_out_of_the_base(loaded):
    config = loaded("overrides: [{runs: a, alerts: {KL: {enabled: false}}}]\n")

    assert shown(config, "KL") == [(3, None, ("a",))]


def test_an_alert_that_is_off_can_be_on_for_some_runs(loaded):
    config = loaded("alerts: {KL: {enabled: false}}\noverrides: [{runs: a, alerts: {KL: {enabled: true}}}]\n")

    assert shown(config, "KL") == [(3, "a", ())]


def test_a_level_can_be_off_and_an_override_can_bring_it_back_with_default_limits(loaded):
    config = loaded(
        "alerts: {KL: {warning: null}}\n"
        "overrides:\n"
        "  - {runs: a, alerts: {KL: {warning: {stddevs: 2}}}}\n"
        "  - {runs: b, alerts: {KL: {critical: null}}}\n"
    )

    first, second, base = config.variants("KL")

    assert (first.limits.warning.above_start, first.limits.warning.stddevs) == (0.5, 2)
    assert (second.limits.warning, second.limits.critical) == (None, None)
    assert (base.limits.warning, base.limits.critical.stddevs) == (None, 6)


def test_the_limits_of_a_level_that_are_left_out_have_their_defaults(loaded):
    warning = loaded("alerts: {Reward: {warning: {stddevs: 3}}}").alerts.Reward.warning

    assert (warning.stddevs, warning.slow_stddevs, warning.drop_ratio) == (3, 2, 0.1)


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


def test_a_scrape_may_not_take_longer_than_its_interval():
    config = Config()

    assert str(config.timeout(Duration.parse("5s"))) == "5s"
    assert str(config.timeout(Duration.parse("1m"))) == "10s"


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
