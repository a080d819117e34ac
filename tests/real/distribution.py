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
    "node": "nodejs",
    "npm": "npm",
}
"""Which package has each program."""


def install() -> None:
    """Install what is missing, as root on a machine with apt; elsewhere the tests concerned are skipped."""
    missing = sorted({package for program, package in PACKAGES.items() if not shutil.which(program)})
    if not missing or os.geteuid() != 0 or not shutil.which("apt-get"):
        return
    sys.stderr.write(f"Installing {', '.join(missing)} ...\n")
    _apt_get("update")
    # Without Debian's keys, debootstrap on Ubuntu would check no signature.
    wanted = [*missing, "debian-archive-keyring", "libc6-dev"]
    # What a distribution does not package must not keep the rest away: Ubuntu has no chromium-driver.
    _apt_get("install", "-y", "--no-install-recommends", *filter(_is_packaged, wanted))


def _is_packaged(package: str) -> bool:
    return bool(subprocess.run(["apt-cache", "show", package], capture_output=True, check=False).stdout)


def _apt_get(*words: str) -> None:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", "-qq", *words], env=quiet, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"apt-get {words[0]}: {done.stderr.strip()[-500:]}")
