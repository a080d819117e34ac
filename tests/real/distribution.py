"""Programs that tests take from the distribution, installed if they are missing and we may."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

PACKAGES = {
    "bindfs": "bindfs",
    "busybox": "busybox-static",
    "chromedriver": "chromium-driver",
    "chromium": "chromium",
    "debootstrap": "debootstrap",
    "docker": "docker.io",
    "dockerd": "docker.io",
    "gcc": "gcc",
    "ip": "iproute2",
    "iptables": "iptables",
    "mkfs.ext4": "e2fsprogs",
}
"""Which package has each program."""


def install() -> None:
    """Install what is missing, as root on a machine with apt; elsewhere the tests concerned are skipped."""
    missing = sorted({package for program, package in PACKAGES.items() if not shutil.which(program)})
    if not missing or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    sys.stderr.write(f"Installing {', '.join(missing)} ...\n")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    # Without Debian's keys, debootstrap on Ubuntu would check no signature.
    missing += ["debian-archive-keyring", "libc6-dev"]
    for command in (["update"], ["install", "-y", "--no-install-recommends", *missing]):
        done = subprocess.run(
            ["apt-get", "-qq", *command], env=quiet, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"apt-get {command[0]}: {done.stderr.strip()[-500:]}")
