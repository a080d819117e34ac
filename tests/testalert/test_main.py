"""`python -m stepwatch test-alert`, as users call it."""

from __future__ import annotations

from stepwatch.__main__ import main
from tests.real import free_port


def test_a_refusal_is_one_line_and_exit_status_2(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("STEPWATCH_STATE", str(tmp_path / "state"))
    config = tmp_path / "config.yaml"
    config.write_text(
        f"ports: {{alertmanager: {free_port()}}}\nreceivers: [{{name: ops, webhook: {{url: 'http://h/'}}}}]\n"
    )

    assert main(["test-alert", "ops", "--config", str(config)]) == 2
    assert capsys.readouterr().err.startswith("Alertmanager does not answer at http://127.0.0.1:")

    assert main(["test-alert", "opps", "--config", str(config)]) == 2
    said = capsys.readouterr().err
    fix = "Fix: name one of these, or add it there and `make up`."
    assert said == f"opps is not a receiver of {config}. Expected: ops. {fix}\n"
