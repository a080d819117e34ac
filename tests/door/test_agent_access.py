"""When a certificate expires, and what is said of one that cannot be used."""

from __future__ import annotations

import re

import pytest

from exporter.door.agent_access import CertificateError, file_marks, load_certificate
from tests.door.remote_write import CERTIFICATES

KEY = CERTIFICATES / "hub-key.pem"


@pytest.mark.parametrize(
    ("name", "expires"), [("hub.pem", 2493072000), ("renewed.pem", 4891363200), ("expired.pem", 1738368000)]
)
def test_the_expiry_is_read_in_both_forms_of_time(name, expires):
    assert load_certificate(CERTIFICATES / name, KEY).expires == expires


def test_text_before_a_certificate_and_others_behind_it_do_no_harm(tmp_path):
    texts = [(CERTIFICATES / name).read_text() for name in ("hub.pem", "ca.pem")]
    chain = tmp_path / "chain.pem"
    chain.write_text("subject=CN = hub\n" + "".join(texts))
    assert load_certificate(chain, KEY).expires == 2493072000


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


def test_a_change_of_permissions_counts_as_a_change(tmp_path):
    file = tmp_path / "key.pem"
    file.write_text("key")
    before = file_marks(file)
    file.chmod(0o640)

    assert file_marks(file) != before
