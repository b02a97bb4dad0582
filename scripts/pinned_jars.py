"""Jars of servers that demos and tests start, each checked against the checksum in a list beside this module.

``zookeeper-jars.txt``: 10 MB, which an installed PySpark has too. ``hadoop-jars.txt``: 62 MB, for tests of HDFS and
YARN. ``kafka-jars.txt``: 46 MB, for tests of sinks. ``postgres-jars.txt``: 15 MB, a PostgreSQL that Debian does not
have. ``rocksdb-jars.txt``: 92 MB, for tests with RocksDB's newest release. Maven fetches them from the repository that
it is configured for. Standard library only.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

__all__ = ["HADOOP", "KAFKA", "POSTGRES", "ROCKSDB", "ZOOKEEPER", "Pin", "fetch", "pins", "pom", "take"]

ZOOKEEPER = Path(__file__).with_name("zookeeper-jars.txt")
HADOOP = Path(__file__).with_name("hadoop-jars.txt")
KAFKA = Path(__file__).with_name("kafka-jars.txt")
POSTGRES = Path(__file__).with_name("postgres-jars.txt")
ROCKSDB = Path(__file__).with_name("rocksdb-jars.txt")
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies"


class Pin(NamedTuple):
    """A jar: the SHA-256 that it must have, and Maven's names for it."""

    sha256: str
    group: str
    artifact: str
    version: str

    @property
    def name(self) -> str:
        """The jar's file name."""
        return f"{self.artifact}-{self.version}.jar"


def pins(text: str) -> list[Pin]:
    """The jars that ``text`` lists: one per line, ``sha256  group:artifact:version``."""
    lines = (line.split() for line in text.splitlines() if line and not line.startswith("#"))
    return [Pin(checksum, *coordinates.split(":")) for checksum, coordinates in lines]


def take(source: Path, target: Path, wanted: Sequence[Pin]) -> list[str]:
    """Copy the ``wanted`` jars from ``source``, and make them all that is in ``target``.

    Returns the names of those that are missing or have another checksum; then ``target`` stays as it was.
    """
    found = {pin.name: source / pin.name for pin in wanted if (source / pin.name).is_file()}
    contents = {name: file.read_bytes() for name, file in found.items()}
    wrong = [pin.name for pin in wanted if hashlib.sha256(contents.get(pin.name, b"")).hexdigest() != pin.sha256]
    if not wrong:
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for name, content in contents.items():
            (target / name).write_bytes(content)
    return wrong


def pom(wanted: Sequence[Pin]) -> str:
    """A Maven project that depends on exactly the ``wanted`` jars: what they depend on in turn is left out."""
    parts = []
    for pin in wanted:
        group, artifact, version = map(escape, (pin.group, pin.artifact, pin.version))
        parts.append(
            f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version>"
            "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"
        )
    return (
        "<project><modelVersion>4.0.0</modelVersion><groupId>none</groupId><artifactId>none</artifactId>"
        f"<version>1</version><packaging>pom</packaging><dependencies>{''.join(parts)}</dependencies></project>"
    )


def fetch(target: Path, wanted: Sequence[Pin]) -> str:
    """Have Maven fetch the ``wanted`` jars into ``target``; returns why that failed, or nothing."""
    if shutil.which("mvn") is None:
        return "Maven (`mvn`) is not installed"
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "pom.xml").write_text(pom(wanted))
        jars = Path(folder) / "jars"
        outcome = subprocess.run(
            ["mvn", "--batch-mode", "--quiet", _COPY, f"-DoutputDirectory={jars}"],
            cwd=folder,
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        if outcome.returncode:
            return "Maven could not fetch them: " + "\n".join(outcome.stdout.splitlines()[:10])
        wrong = take(jars, target, wanted)
    return f"not as pinned: {', '.join(wrong)}" if wrong else ""
