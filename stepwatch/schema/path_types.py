"""Types of files, secrets, addresses and URLs; relative paths are from config.yaml's folder, if known."""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import SplitResult, urlsplit

from pydantic import ValidationInfo

from exporter import secret_shapes
from stepwatch.schema.errors import Fault, KeyPath, SecretFault
from stepwatch.schema.section import Checked

_TARGET = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9][A-Za-z0-9._-]*):([0-9]{1,5})")
# Alertmanager takes addresses and channels for templates: no braces.
_MAIL_ADDRESS = re.compile(r"[\w.!#$%&'*+/=?^`|~-]{1,64}@[\w-]+(\.[\w-]+)*", re.ASCII)
_CHANNEL = re.compile(r"[#@]?[\w.-]{1,80}")
_METRICS_PATH = re.compile(r"/[^\s?#]*")
# What Prometheus accepts as a pattern of target files.
_FILE_GLOB = re.compile(r"[^*]*(\*[^/]*)?\.(json|yml|yaml|JSON|YML|YAML)")


def to_path(value: Any, info: ValidationInfo) -> Path:
    """Return the path that a value names. Raises Fault if it names none."""
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str) or not value.strip():
        raise Fault("is not a path", expected="the path of a file or folder", fix="write it as a text")
    return Path(_folder(info), os.path.expanduser(value))  # noqa: PTH111  Path.expanduser raises for unknown users


def _target_files(value: Any, info: ValidationInfo) -> Path:
    path = to_path(value, info)
    if not _FILE_GLOB.fullmatch(str(path)):
        raise Fault(
            "is not a pattern of target files",
            expected="a path that ends in .json, .yml or .yaml, with at most one *, in the last part",
            fix="name the files of targets so",
        )
    return path


def _listen(value: Any) -> str:
    try:
        return str(ipaddress.ip_address(value if isinstance(value, str) else ""))
    except ValueError as error:
        raise Fault(
            "is not an IP address",
            expected="the address to listen on, such as 127.0.0.1",
            fix="write an address, without a port",
        ) from error


def _target(value: Any) -> str:
    match = _TARGET.fullmatch(value) if isinstance(value, str) else None
    if match and 0 < int(match[2]) < 65536:
        return match[0]
    fix = "write the port too, such as gpu-node-1:9400"
    if isinstance(value, str) and "/" in value:
        fix = "write only host and port; scheme and metrics_path are keys of their own"
    raise Fault("is not a target", expected="host:port", fix=fix)


def _mail_server(value: Any) -> str:
    try:
        return _target(value)
    except Fault as fault:
        raise Fault(
            "is not a mail server",
            expected="host:port",
            fix="write the port too, such as mail.example.org:587",
        ) from fault


def _matching(pattern: re.Pattern[str], says: str, expected: str, fix: str) -> Checked:
    """Return the check of a text that matches a pattern as a whole."""

    def check(value: Any) -> str:
        if isinstance(value, str) and pattern.fullmatch(value):
            return value
        raise Fault(says, expected=expected, fix=fix)

    return Checked(check)


def is_url(text: str) -> bool:
    """Whether a text is an address of the web."""
    try:
        url = urlsplit(text)
        return url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        return False


def _url(value: Any, fix: str = "delete it") -> SplitResult:
    if not isinstance(value, str) or not is_url(value) or re.search(r"\s", value):
        raise Fault(
            "is not a URL",
            expected="an address such as http://host:port/path",
            fix="write it in full, with http:// or https://",
        )
    url = urlsplit(value)
    if url.username is not None or url.password is not None:
        raise _secret_in_url("a user name or password", fix)
    return url


def _link(value: Any) -> str:
    return _url(value).geturl().rstrip("/")


def _page(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[^\s#:]+", value):
        return value
    return _link(value)


def _open_url(fix: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        url = _url(value, fix)
        if what := secret_shapes.in_url(value):
            raise _secret_in_url(what, fix)
        return url.geturl()

    return check


def _secret_in_url(what: str, fix: str) -> Fault:
    return SecretFault(
        f"holds {what}, which would be written to generated files", expected="a URL without secrets", fix=fix
    )


MAX_BYTES = 8192
MAX_CERTIFICATES = 2**20


def read_secret(path: Path) -> str:
    """Return the secret in a file, without the space around it. Raises OSError or UnicodeDecodeError."""
    with path.open("rb") as file:
        return file.read(MAX_BYTES + 1).decode().strip()


def _secret_file(*, url: bool) -> Callable[[Any, ValidationInfo], Path]:
    """Return the check of a file that holds a secret; its content is judged, and never repeated."""

    def check(value: Any, info: ValidationInfo) -> Path:
        path = to_path(value, info)
        if info.context and (fault := check_secret(path, info, url=url)):
            raise fault
        return path

    return check


def _folder(info: ValidationInfo) -> Any:
    return (info.context or {}).get("folder", "")


def check_secret(path: Path, info: ValidationInfo, at: KeyPath = (), *, url: bool) -> Fault | None:
    """Return what is wrong with a file that should hold a secret, or a secret URL; None if nothing is."""
    if not (says := _secret_fault(path, url=url)):
        return None
    what = "the URL" if url else "the secret"
    return Fault(
        says,
        expected=f"a file with nothing but {what}, its path seen from {_folder(info)}",
        fix=f"put {what} into a file of its own, and write the file's path here",
        at=at,
        value=str(path) if at else None,
    )


def check_shown(path: Path, info: ValidationInfo, at: KeyPath) -> Fault | None:
    """Return what is wrong with a file of any lines, such as a certificate; None if nothing is."""
    try:
        with path.open("rb") as file:
            says = "" if file.read(1) else "names an empty file"
    except OSError as error:
        says = f"names a file that cannot be read ({error.strerror})"
    if not says:
        return None
    return Fault(
        says,
        expected=f"a file, its path seen from {_folder(info)}",
        fix="put it there, and write its path here",
        at=at,
        value=str(path),
    )


def _secret_fault(path: Path, *, url: bool) -> str | None:
    fault = None
    try:
        content = read_secret(path) if path.is_file() else None
    except OSError as error:
        return f"names a file that cannot be read ({error.strerror})"
    except UnicodeDecodeError:
        return "names a file that holds no text"
    if content is None:
        fault = "names a file that does not exist"
    elif not content:
        fault = "names an empty file"
    elif len(content) > MAX_BYTES or len(content.splitlines()) > 1:
        fault = "names a file with more than one line"
    elif url and (" " in content or not is_url(content)):
        fault = "names a file that holds no URL"
    return fault


def _pem(path: Path, info: ValidationInfo, what: str, fix: str) -> str:
    """Return the text of a file of certificates or of a key. Raises Fault if it cannot be read."""
    try:
        return path.read_text(encoding="ascii", errors="replace")[:MAX_CERTIFICATES]
    except OSError as error:
        says = f"cannot be read ({error.strerror})"
        raise Fault(says, expected=f"{what}, its path seen from {_folder(info)}", fix=fix) from error


def _trust_file(value: Any, info: ValidationInfo) -> Path:
    path = to_path(value, info)
    if not info.context:
        return path
    text = _pem(path, info, "a file of certificates", "write the file's path here")
    if "PRIVATE KEY" in text:
        raise Fault(
            "holds a private key", expected="certificates only", fix="copy the certificates to another file"
        )
    if "-----BEGIN CERTIFICATE-----" not in text:
        raise Fault("holds no certificate", expected="certificates in PEM", fix="convert it to PEM")
    return path


def _key_file(value: Any, info: ValidationInfo) -> Path:
    path = to_path(value, info)
    if not info.context:
        return path
    fix = "write the file's path here, and let this user read it"
    text = _pem(path, info, "a file with a private key", fix)
    if "PRIVATE KEY-----" not in text:
        raise Fault("holds no private key", expected="a private key in PEM", fix="convert it to PEM")
    if "ENCRYPTED" in text:
        raise Fault(
            "holds an encrypted private key",
            expected="a key without a passphrase, which no one could enter",
            fix="decrypt it: openssl pkey -in KEY -out PLAIN",
        )
    return path


FolderOrGlob = Annotated[Path, Checked(to_path, located=True)]
TargetFiles = Annotated[Path, Checked(_target_files, located=True)]
ListenAddress = Annotated[str, Checked(_listen)]
Target = Annotated[str, Checked(_target)]
MailServer = Annotated[str, Checked(_mail_server)]
MailAddress = Annotated[
    str,
    _matching(
        _MAIL_ADDRESS,
        "is not a mail address",
        "an address such as alerts@example.org, without a name beside it",
        "write such an address, in quotes if it has special characters",
    ),
]
Channel = Annotated[
    str,
    _matching(_CHANNEL, "is not a channel", 'a name such as "#training"', 'quote it: "#" begins a comment'),
]
MetricsPath = Annotated[
    str, _matching(_METRICS_PATH, "is not a path on a server", "a path such as /metrics", 'start it with "/"')
]
Link = Annotated[str, Checked(_link)]
Page = Annotated[str, Checked(_page)]
WebhookUrl = Annotated[
    str, Checked(_open_url("delete it; a receiver can name a file that holds its URL (url_file)"))
]
PageUrl = Annotated[str, Checked(_open_url("delete it; pages are read without a login"))]
ServerUrl = Annotated[
    str, Checked(_open_url("delete it; token_file can name a file that holds a bearer token"))
]
TrustFile = Annotated[Path, Checked(_trust_file, located=True)]
KeyFile = Annotated[Path, Checked(_key_file, located=True)]
SecretFile = Annotated[Path, Checked(_secret_file(url=False), located=True)]
SecretUrlFile = Annotated[Path, Checked(_secret_file(url=True), located=True)]
