"""What this Prometheus hands on to a central system: the `external_labels` and `remote_write` sections."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, Field, model_validator

from stepwatch.schema.errors import NOTHING, Fault, SecretFault
from stepwatch.schema.names import LabelName, LabelValue
from stepwatch.schema.path_types import SecretFile, ServerUrl, TrustFile
from stepwatch.schema.section import Checked, Section, default, needed


def _plain(value: str) -> str:
    # Prometheus 3 puts variables of its environment in their place, Prometheus 2 does not.
    if "$" in value:
        raise Fault("holds $", expected="a text without it", fix="write another name")
    return value


ExternalLabels = dict[LabelName, Annotated[LabelValue, AfterValidator(_plain)]]

_HEADER = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
# What Prometheus refuses, since it sets them itself.
_RESERVED = frozenset(
    {
        "authorization",
        "host",
        "content-encoding",
        "content-length",
        "content-type",
        "user-agent",
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "www-authenticate",
        "accept-encoding",
        "x-prometheus-remote-write-version",
        "x-prometheus-remote-read-version",
    }
)


def _header(value: Any) -> str:
    if not isinstance(value, str) or not _HEADER.fullmatch(value):
        raise Fault(
            "is not the name of a header", expected="letters, digits and -", fix="write X-Scope-OrgID, say"
        )
    if value.lower() in ("authorization", "proxy-authorization", "cookie"):
        raise SecretFault(
            "would hold a secret, which would be written to generated files",
            expected="no login among headers",
            fix="name a file with it: token_file, or username and password_file",
        )
    if value.lower() in _RESERVED:
        raise Fault("is set by Prometheus itself", expected="another header", fix="delete it")
    return value


class RemoteWrite(Section):
    """A system that takes Prometheus' remote write: another Prometheus, VictoriaMetrics, Thanos, Mimir."""

    url: ServerUrl = needed("The remote write URL, such as https://metrics.example.org/api/v1/write.")
    token_file: SecretFile | None = default(None, "A file with a bearer token, never the token itself.")
    username: LabelValue | None = default(None, "The login, with password_file, instead of a token.")
    password_file: SecretFile | None = default(None, "A file with the password.")
    ca_file: TrustFile | None = default(
        None, "A file with the certificates (PEM) to trust for the server. null: the system's."
    )
    headers: dict[Annotated[str, Checked(_header)], LabelValue] = Field(
        default_factory=dict,
        description="Additional headers, such as X-Scope-OrgID for Mimir's tenants. No secrets.",
    )

    @model_validator(mode="after")
    def _one_login(self) -> RemoteWrite:
        if (self.username is None) != (self.password_file is None):
            has, lacks = ("username", "password_file")[:: 1 if self.username else -1]
            raise Fault(
                f"has {has} without {lacks}",
                value=NOTHING,
                expected="both, or neither",
                fix=f"add {lacks}, or delete {has}",
            )
        if self.username and self.token_file:
            raise Fault(
                "has two logins",
                value=NOTHING,
                expected="token_file, or username with password_file",
                fix="delete one of the two",
            )
        return self
