"""Builds the readers of other languages into ``build/peers``, from pinned versions and with what the machine has.

Each is built anew only when its sources changed.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

__all__ = ["BUILDS", "SOURCES", "built", "fingerprint"]

SOURCES: Final = Path(__file__).parent
_TIMEOUT_S: Final = 1200
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"

Commands = Callable[[Path, Path], Sequence[Sequence[str]]]
"""From the folders of the sources and of the result to the commands that build."""


def _go(source: Path, target: Path) -> Sequence[Sequence[str]]:
    return [["go", "build", "-C", str(source), "-mod=readonly", "-o", f"{target}/peer", "."]]


def _rust(source: Path, target: Path) -> Sequence[Sequence[str]]:
    manifest = ("--manifest-path", f"{source}/Cargo.toml", "--target-dir", str(target))
    return [["cargo", "build", "--quiet", "--release", "--locked", *manifest]]


def _java(source: Path, target: Path) -> Sequence[Sequence[str]]:
    jars = f"-DoutputDirectory={target}/lib"
    copy = ["mvn", "--batch-mode", "--quiet", "-f", f"{source}/pom.xml", _COPY, jars, "-DincludeScope=runtime"]
    files = sorted(map(str, source.glob("*.java")))
    return [copy, ["javac", "-cp", f"{target}/lib/*", "-d", f"{target}/classes", *files]] if files else [copy]


BUILDS: Final[dict[str, Commands]] = {
    "go": _go,
    "rust": _rust,
    "osheroff": _java,
    "debezium": _java,
    "maxwell": _java,
}


def fingerprint(source: Path) -> str:
    """A fingerprint of the sources' names and contents."""
    digest = hashlib.sha256()
    for file in sorted(path for path in source.rglob("*") if path.is_file()):
        content = file.read_bytes()
        digest.update(f"{file.relative_to(source)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def built(name: str, target: Path, commands: Commands, source: Path) -> str:
    """Build reader ``name`` into ``target``. Returns why it could not be built, or nothing."""
    stamp, wanted = target / "fingerprint", fingerprint(source)
    if stamp.is_file() and stamp.read_text() == wanted:
        return ""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    for command in commands(source, target):
        if shutil.which(command[0]) is None:
            return f"`{command[0]}` is not installed"
        try:
            done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            return f"`{command[0]}` took more than {_TIMEOUT_S} s"
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.returncode}"]
            return f"`{command[0]}` failed: {said[0][:200]}"
    stamp.write_text(wanted)
    return ""
