"""When a certificate expires, and what is said of one that cannot be used."""

from __future__ import annotations

import re

import pytest

from exporter.door.agent_access import CertificateError, load_certificate
from tests.door.remote_write import CERTIFICATES

KEY = CERTIFICATES / "hub-key.pem"


@pytest.mark.parametrize(
    ("certificate", "key", "says"),
    [
        ("none.pem", "hub-key.pem", "--agents-cert .*none.pem: cannot be read"),
        ("hub.pem", "none.pem", "--agents-key .*none.pem: cannot be read"),
        ("hub-key.pem", "hub-key.pem", "is not a certificate"),
        ("hub.pem", "hub.pem", "holds no private key"),
        ("hub.pem", "other-key.pem", "other-key.pem: cannot be used with .*hub.pem"),
        ("hub.pem", "encrypted-key.pem", "without a passphrase"),
    ],
)
def test_files_that_cannot_be_used_are_named_with_the_fix(certificate, key, says):
    with pytest.raises(CertificateError) as error:
        load_certificate(CERTIFICATES / certificate, CERTIFICATES / key)
    assert re.search(says, str(error.value))
    assert "Fix: " in str(error.value)


def test_a_key_that_every_user_reads_is_noticed(tmp_path):
    key = tmp_path / "key.pem"
    key.write_text(KEY.read_text())
    for mode, exposed in ((0o644, True), (0o640, False)):
        key.chmod(mode)
        assert load_certificate(CERTIFICATES / "hub.pem", key).exposed == exposed
