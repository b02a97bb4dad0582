"""Finds the Debian packages that a target of the Makefile lacks, and installs a Debian system into a folder.

Standard library only, and readable by an older Python.
"""

from __future__ import annotations

import ctypes.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.steps import VENV, quietly, say, stop

__all__ = [
    "DEBIAN_ZOOKEEPER",
    "Mirror",
    "SystemPackage",
    "debian_mirror",
    "install_system_packages",
    "missing_system_packages",
    "unpack_debian",
    "unpack_packages",
    "without_chroot",
]

DEBIAN_ZOOKEEPER = Path("/usr/share/java/zookeeper.jar")


class SystemPackage(NamedTuple):
    """A Debian package that is missing: its name, what it is for, and whether work can go on without it."""

    name: str
    why: str
    required: bool


def missing_system_packages(group: str, *, compile_wanted: bool) -> list[SystemPackage]:
    """What this machine lacks for ``group``; probes for the thing itself, not for the package that brings it."""
    found: list[SystemPackage] = []
    if not VENV.exists() and not _can_make_venv():
        found.append(SystemPackage("python3-venv", "makes the virtual environment", required=True))
    if shutil.which("java") is None:
        found.append(SystemPackage("default-jre-headless", "runs the embedded ZooKeeper (about 45 MB)", required=True))
    if group != "dev" and _missing("mvn") and not DEBIAN_ZOOKEEPER.exists():
        found.append(SystemPackage("maven", "fetches the jars of the embedded ZooKeeper (10 MB)", required=False))
    if compile_wanted:
        if not (shutil.which("gcc") or shutil.which("cc")):
            found.append(SystemPackage("gcc", "compiles the hot modules", required=False))
        if not Path("/usr/include/stdio.h").exists():
            found.append(SystemPackage("libc6-dev", "C headers for the compiler", required=False))
        if not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists():
            found.append(SystemPackage("python3-dev", "Python's C headers for the compiler", required=False))
    if group in {"dev", "demo-mysql"} and _missing("mariadbd", "mariadb-install-db"):
        found.append(SystemPackage("mariadb-server-core", "the private MariaDB; no service", group == "demo-mysql"))
    if group == "demo-mysql" and _missing("my_print_defaults"):
        found.append(SystemPackage("mariadb-client-core", "sets the private MariaDB up", required=True))
    if group == "dev" and _missing("mariadb", "mariadb-dump", "mariadb-binlog"):
        found.append(SystemPackage("mariadb-client", "what the tests compare with", required=False))
    if group == "dev" and _missing("chromium"):
        # Its own list of recommended packages is 100 MB more; of these only letters are needed, or text has no size.
        why = "the browser that looks at the status page in the tests (about 110 MB with its libraries)"
        found.append(SystemPackage("chromium", why, required=False))
        found.append(SystemPackage("fonts-liberation", "letters for it", required=False))
    if group == "dev" and os.geteuid() == 0 and _missing("debootstrap"):
        found.append(SystemPackage("debootstrap", "fetches a private MySQL for the tests", required=False))
    if group == "dev" and ctypes.util.find_library("rocksdb") is None:
        found.append(SystemPackage("librocksdb7.8", "RocksDB's C library: the two-phase-commit tests", required=False))
    return found


def _missing(*programs: str) -> bool:
    """Whether one of them is not there. Servers and tools for root are not on every user's path."""
    path = os.pathsep.join((os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"))
    return any(shutil.which(program, path=path) is None for program in programs)


def _can_make_venv() -> bool:
    try:
        import ensurepip
        import venv
    except ImportError:
        return False
    return bool(ensurepip and venv)


def _root_prefix() -> list[str] | None:
    """How to run a command as root without asking anybody, or None."""
    if os.geteuid() == 0:
        return []
    if shutil.which("sudo") and quietly(["sudo", "-n", "true"]).returncode == 0:
        return ["sudo", "-n"]
    return None


def install_system_packages(wanted: Sequence[SystemPackage]) -> None:
    """Install ``wanted`` with apt, or name them; stops only when a required one stays missing."""
    if not wanted:
        return
    for package in wanted:
        say(f"Debian package {package.name} is missing: {package.why}")
    names = [package.name for package in wanted]
    command = f"apt-get install -y --no-install-recommends {' '.join(names)}"
    prefix = _root_prefix() if shutil.which("apt-get") else None
    problem = "this account may not install packages (neither root nor sudo without a password)"
    if prefix is not None:
        apt = [*prefix, "env", "DEBIAN_FRONTEND=noninteractive", "LC_ALL=C", "apt-get"]
        install = [*apt, "install", "--no-install-recommends", "-o", "Dpkg::Use-Pty=0", *names]
        say(f"running: apt-get update && {command}")
        # The lists of a fresh machine are empty or old; an update that fails may still leave usable ones.
        quietly([*apt, "update"])
        for line in quietly([*install, "--assume-no"]).stdout.splitlines():
            if line.startswith(("Need to get", "After this operation")):
                say(f"apt: {line}")
        outcome = quietly([*install, "-y"])
        if outcome.returncode == 0:
            return
        print("\n".join(outcome.stdout.splitlines()[-15:]), file=sys.stderr)
        problem = "apt-get could not install them (its message stands above)"
    required = [package.name for package in wanted if package.required]
    optional = [package.name for package in wanted if not package.required]
    if required:
        stop(f"{problem}.\n  As root, run:  apt-get update && {command}\n  then repeat the same make command.")
    say(f"going on without {', '.join(optional)}: {problem}. To have them, as root: apt-get update && {command}")


class Mirror(NamedTuple):
    """Where this machine gets Debian from, and the file of keys that its sources name for it, if they do."""

    address: str
    keyring: str


def debian_mirror() -> Mirror | None:
    """As apt is configured; ``None`` on a machine that gets no Debian packages."""
    filters = ("Created-By: Packages", "Origin: Debian", "Label: Debian")
    told = quietly(["apt-get", "indextargets", "--format", "$(REPO_URI) $(SOURCESENTRY)", *filters])
    if told.returncode or not told.stdout.strip():
        return None
    address, _, entry = told.stdout.splitlines()[0].partition(" ")
    sources = Path(entry.rpartition(":")[0])
    keys = re.search(
        r"signed-by\s*[:=]\s*(/[^\s\],]+)", sources.read_text() if sources.is_file() else "", re.IGNORECASE
    )
    return Mirror(address, keys.group(1) if keys else "")


def without_chroot() -> str:
    """Why no system of its own can be made here in a folder; empty when nothing stands against it."""
    if os.geteuid() != 0:
        return "only root may run a program with a folder of its own as root"
    return "debootstrap is not installed" if _missing("debootstrap") else ""


def unpack_debian(
    folder: Path, suite: str, packages: Sequence[str], mirror: Mirror
) -> subprocess.CompletedProcess[str]:
    """Put ``packages`` of one of Debian's suites into ``folder``, which is emptied first, with all that they need.

    The packages are checked as apt does, and unpacked; none of their scripts runs, and nothing is mounted. Returns the
    outcome of the step that failed, or of the last one.
    """
    shutil.rmtree(folder, ignore_errors=True)
    fetch = ["debootstrap", "--foreign", "--variant=minbase", f"--include={','.join(packages)}"]
    keys = [f"--keyring={mirror.keyring}"] if mirror.keyring else []
    outcome = quietly([*fetch, *keys, suite, folder, mirror.address])
    archives = folder / "var" / "cache" / "apt" / "archives"
    for package in sorted(archives.glob("*.deb")) if outcome.returncode == 0 else ():
        # /lib and /bin are links there; without this option an old package would put folders in their place.
        unpack = 'dpkg-deb --fsys-tarfile "$1" | tar --extract --keep-directory-symlink --directory "$2"'
        outcome = quietly(["sh", "-c", unpack, "sh", package, folder])
        if outcome.returncode:
            return outcome
    if outcome.returncode == 0:
        (folder / "etc" / "passwd").write_text("root:x:0:0:root:/root:/bin/sh\n")
        for done in (archives, folder / "var" / "lib" / "apt", folder / "debootstrap"):
            shutil.rmtree(done)
    return outcome


def unpack_packages(folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    """Put the package ``name`` of this machine's Debian into ``folder``, with what it needs and is not installed here.

    Nothing is installed: no script of a package runs, and no service is made. Returns the outcome of the step that
    failed, or of the last one.
    """
    folder.mkdir(parents=True)
    plan = ["apt-get", "install", "--simulate", "--no-install-recommends", name]
    planned = quietly(plan, LC_ALL="C")
    prefix = _root_prefix()
    if planned.returncode and prefix is not None:  # the lists of a fresh machine are empty or old
        quietly([*prefix, "apt-get", "update"])
        planned = quietly(plan, LC_ALL="C")
    if planned.returncode:
        return planned
    names = re.findall(r"^Inst (\S+)", planned.stdout, re.MULTILINE)
    archives = folder / "archives"
    archives.mkdir()
    # `apt-get download` puts the files into the folder that it runs in.
    outcome = quietly(["sh", "-c", 'cd "$1" && shift && exec apt-get download "$@"', "sh", archives, *names])
    for package in sorted(archives.glob("*.deb")) if outcome.returncode == 0 else ():
        outcome = quietly(["dpkg-deb", "--extract", package, folder])
        if outcome.returncode:
            return outcome
    shutil.rmtree(archives)
    return outcome
