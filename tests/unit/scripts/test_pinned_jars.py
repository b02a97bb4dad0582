"""The pinned jars of the embedded ZooKeeper: nothing else is put in place, whoever fetches it."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from pathlib import Path

import pytest

from scripts.pinned_jars import ZOOKEEPER, Pin, fetch, pins, pom, take

ONE = Pin(hashlib.sha256(b"one").hexdigest(), "org.one", "one-jar", "1.0")
TWO = Pin(hashlib.sha256(b"two").hexdigest(), "org.two", "two", "2.0.Final")


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    folder.mkdir()
    (folder / "one-jar-1.0.jar").write_bytes(b"one")
    (folder / "two-2.0.Final.jar").write_bytes(b"two")
    (folder / "three-3.jar").write_bytes(b"three")
    return folder


def test_a_line_is_a_checksum_and_a_name() -> None:
    assert pins(f"# about\n{ONE.sha256}  org.one:one-jar:1.0\n") == [ONE]


def test_the_wanted_jars_are_all_that_is_there(source: Path, tmp_path: Path) -> None:
    target = tmp_path / "share" / "target"
    assert take(source, target, [ONE]) == []
    assert take(source, target, [ONE, TWO]) == []
    assert {jar.name: jar.read_bytes() for jar in target.iterdir()} == {ONE.name: b"one", TWO.name: b"two"}
    assert take(source, target, [TWO]) == []
    assert [jar.name for jar in target.iterdir()] == [TWO.name]


@pytest.mark.parametrize("fault", ["changed", "missing"])
def test_a_jar_that_is_not_the_pinned_one_changes_nothing(source: Path, tmp_path: Path, fault: str) -> None:
    target = tmp_path / "target"
    take(source, target, [ONE])
    if fault == "changed":
        (source / TWO.name).write_bytes(b"two, and more")
    else:
        (source / TWO.name).unlink()
    assert take(source, target, [ONE, TWO]) == [TWO.name]
    assert [jar.name for jar in target.iterdir()] == [ONE.name]


def test_maven_is_asked_for_the_pinned_jars_and_nothing_that_they_ask_for() -> None:
    text = pom([ONE, TWO])
    assert "<groupId>org.one</groupId><artifactId>one-jar</artifactId><version>1.0</version>" in text
    assert text.count("<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>") == 2


@pytest.mark.parametrize(
    ("maven", "problem"),
    [
        ('cp {source}/*.jar "$jars"', ""),
        ('cp {source}/one-jar-1.0.jar "$jars"; echo changed > "$jars/two-2.0.Final.jar"', "two-2.0.Final.jar"),
        ("echo no such repository; exit 1", "no such repository"),
    ],
)
def test_what_maven_brings_is_checked(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, maven: str, problem: str
) -> None:
    program = tmp_path / "bin" / "mvn"
    program.parent.mkdir()
    prepare = 'for word; do case "$word" in -DoutputDirectory=*) jars="${word#*=}"; mkdir "$jars";; esac; done\n'
    program.write_text("#!/bin/sh\ntest -f pom.xml || exit 3\n" + prepare + maven.replace("{source}", str(source)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    said = fetch(tmp_path / "target", [ONE, TWO])
    assert bool(said) is bool(problem)
    assert problem in said
    assert (tmp_path / "target").exists() is not bool(problem)


def test_without_maven_it_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "Maven" in fetch(tmp_path / "target", [ONE])


def test_the_pinned_jars_are_those_of_the_locked_pyspark(tmp_path: Path) -> None:
    spec = importlib.util.find_spec("pyspark")
    assert spec is not None
    assert spec.origin is not None
    listed = pins(ZOOKEEPER.read_text())
    assert len(listed) == 20
    assert take(Path(spec.origin).with_name("jars"), tmp_path / "jars", listed) == []
