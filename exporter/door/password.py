"""``python -m exporter.door.password FILE FOLDER``: make the containers' passwords where there are none.

FILE gets Grafana's, FOLDER what opens Prometheus and Alertmanager behind the door.
"""

from __future__ import annotations

import os
import secrets
import sys
from pathlib import Path

from exporter.door import backend_access


def main(arguments: list[str]) -> int:
    """Make the files. Returns the exit code."""
    file, folder = map(Path, arguments)
    if not file.exists():
        make(file)
    # Each container that mounts the volume reads it as another user.
    backend_access.make(folder, mode=0o644)
    print(  # noqa: T201  (what `docker compose logs init` shows)
        "Grafana: user admin; its password is shown by "
        "`docker compose exec grafana cat /run/stepwatch/grafana-password`."
    )
    return 0


def make(file: Path) -> None:
    """Write a new password of 24 characters; the file is whole or not there at all."""
    fresh = file.with_name(f".{file.name}.new")
    # Grafana's container reads it as another user; the volume is mounted nowhere else.
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    with os.fdopen(handle, "w") as text:
        text.write(secrets.token_urlsafe(18))
    fresh.rename(file)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
