"""What is fetched or made once and kept: compiled forms, pinned jars, generated code, packages."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from scripts import compiled_cache, prepare, proto
from scripts.compiled_cache import keep, place
from scripts.compiled_cache import take as take_compiled
from scripts.pinned_jars import ZOOKEEPER, Pin, fetch, pins, pom, take
from scripts.prepare import LOCK, ROOT, TOOLS
from scripts.registry import locked, uv_environment

# --- compiled cache: compiled forms for the next checkout: whole, unchanged and one's own, or none ---


DIGEST = "0123abcd"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "one" / "wormhole").mkdir(parents=True)
    (tmp_path / "two" / "wormhole").mkdir(parents=True)
    (tmp_path / "one" / "wormhole" / "a.so").write_bytes(b"compiled a")
    (tmp_path / "one" / "wormhole" / "b.so").write_bytes(b"compiled b")
    return tmp_path / "one"


@pytest.fixture
def cache(root: Path, tmp_path: Path) -> Path:
    keep(tmp_path / "cache", DIGEST, root, sorted(root.rglob("*.so")))
    return tmp_path / "cache"


def contents(root: Path) -> dict[str, bytes]:
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def test_another_checkout_gets_what_one_compiled(cache: Path, root: Path, tmp_path: Path) -> None:
    (tmp_path / "two" / "wormhole" / "a.so").write_bytes(b"old")
    assert take_compiled(cache, DIGEST, tmp_path / "two")
    assert contents(tmp_path / "two") == contents(root)


def test_other_sources_get_nothing(cache: Path, tmp_path: Path) -> None:
    assert not take_compiled(cache, "0123abce", tmp_path / "two")
    assert contents(tmp_path / "two") == {}


@pytest.mark.parametrize("damage", ["changed", "gone", "no sums"])
def test_a_damaged_set_is_not_taken_and_can_be_kept_anew(cache: Path, root: Path, tmp_path: Path, damage: str) -> None:
    file = cache / DIGEST / ("sums" if damage == "no sums" else "1")
    if damage == "changed":
        file.write_bytes(b"compiled ")
    else:
        file.unlink()
    assert not take_compiled(cache, DIGEST, tmp_path / "two")
    assert contents(tmp_path / "two") == {}
    keep(cache, DIGEST, root, sorted(root.rglob("*.so")))
    assert take_compiled(cache, DIGEST, tmp_path / "two")


@pytest.mark.parametrize("of", ["cache", "set"])
def test_a_folder_that_others_can_write_to_is_not_trusted(cache: Path, tmp_path: Path, of: str) -> None:
    (cache if of == "cache" else cache / DIGEST).chmod(0o777)
    assert not take_compiled(cache, DIGEST, tmp_path / "two")


def test_a_folder_of_another_user_is_not_trusted(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    assert not take_compiled(cache, DIGEST, tmp_path / "two")


def test_the_sets_used_last_stay(cache: Path, root: Path, tmp_path: Path) -> None:
    files = [root / "wormhole" / "a.so"]
    for number in range(compiled_cache.KEPT):
        os.utime(cache / DIGEST, (number, number))  # the oldest, unless it is used
        assert take_compiled(cache, DIGEST, tmp_path / "two")
        keep(cache, f"{number:08x}", root, files)
        for folder in cache.iterdir():
            os.utime(folder, (100 + number, 100 + number)) if folder.name == f"{number:08x}" else None
    assert (cache / DIGEST).exists()
    assert len(list(cache.iterdir())) == compiled_cache.KEPT
    assert not (cache / f"{0:08x}").exists()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"HOME": "/home/me"}, "/home/me/.cache/wormhole/compiled"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "/fast"}, "/fast/wormhole/compiled"),
        ({"HOME": "/home/me", "XDG_CACHE_HOME": "relative"}, "/home/me/.cache/wormhole/compiled"),
    ],
)
def test_it_is_where_the_user_keeps_caches(environment: dict[str, str], expected: str) -> None:
    assert place(environment) == Path(expected)


# --- pinned jars ---


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


# --- proto: generated code: what is committed is what ``proto/`` gives, and a difference is named ---


def test_an_edit_a_missing_and_a_left_over_file_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    committed = tmp_path / "wormhole"
    shutil.copytree(prepare.ROOT / "wormhole" / "wire", committed / "wire")
    monkeypatch.setattr(proto, "ROOT", tmp_path)
    assert proto.differences() == []
    edited, missing, *_ = sorted((committed / "wire" / "v1").glob("*_pb2.py"))
    edited.write_text(edited.read_text() + "\n")
    missing.unlink()
    (committed / "wire" / "v1" / "old_pb2.py").write_text("")
    found = "\n".join(proto.differences())
    assert f"{edited.name} is not what proto/ gives" in found
    assert f"{missing.name} is missing" in found
    assert "old_pb2.py has no .proto any more" in found


# --- registry: from pip to uv: the settings of this machine, and the lock file ---


LOCKED = dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    ("pip_config", "expected"),
    [
        ("", {}),
        ("global.index-url='https://one.example/simple'\n", {"UV_DEFAULT_INDEX": "https://one.example/simple"}),
        (
            "global.extra-index-url='https://two.example\\nhttps://three.example'\n",
            {"UV_INDEX": "https://two.example https://three.example", "UV_INDEX_STRATEGY": "unsafe-best-match"},
        ),
        (
            "global.cert='/etc/one.pem'\nglobal.client-cert='/two'",
            {"SSL_CERT_FILE": "/etc/one.pem", "SSL_CLIENT_CERT": "/two"},
        ),
        (":env:.default-timeout='180'\n", {"UV_HTTP_TIMEOUT": "180"}),
        ("global.trusted-host='a.example b.example'", {"UV_INSECURE_HOST": "a.example b.example"}),
        ("global.proxy='http://p.example:3128'", {"ALL_PROXY": "http://p.example:3128"}),
        (
            "global.find-links='https://files.example /no/such/folder /usr'",
            {"UV_FIND_LINKS": "https://files.example,/usr"},
        ),
        ("global.disable-pip-version-check='1'\nfreeze.timeout='10'\nWARNING: noise\n", {}),
    ],
)
def test_uv_gets_the_settings_of_pip(pip_config: str, expected: dict[str, str]) -> None:
    assert uv_environment(pip_config, {}) == expected


def test_the_environment_wins_over_a_section_and_that_over_the_global_one() -> None:
    config = {"global": "global.cert='/g'", "install": "install.cert='/i'", "env": ":env:.cert='/e'"}

    def cert(*sections: str) -> str:
        return uv_environment("\n".join(config[section] for section in sections), {})["SSL_CERT_FILE"]

    assert cert("install", "global") == "/i"
    assert cert("env", "global", "install") == "/e"


def test_what_is_set_for_uv_stays_and_so_does_the_rest_of_the_environment() -> None:
    given = {"UV_DEFAULT_INDEX": "https://mine.example", "HOME": "/home/me"}
    assert uv_environment("global.index-url='https://pip.example'", given) == given


def test_one_package_of_the_lock_has_its_version_and_its_hashes() -> None:
    text = (
        "# made by uv\nuv-build==9 \\\n    --hash=sha256:cc\nuv==1.2 ; x == 'y' \\\n    --hash=sha256:aa \\\n    "
        "--hash=sha256:bb\nz==1\n"
    )
    assert locked("uv", text) == "uv==1.2 ; x == 'y' \\\n    --hash=sha256:aa \\\n    --hash=sha256:bb\n"
    with pytest.raises(ValueError, match="has no z"):
        locked("z", text)  # a version without a hash


def wanted() -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    yield from map(Requirement, project["build-system"]["requires"])
    yield from map(Requirement, project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        yield from map(Requirement, extra)


def test_the_lock_holds_a_version_of_every_package_that_pyproject_accepts() -> None:
    wrong = [str(one) for one in wanted() if LOCKED.get(canonicalize_name(one.name), "none") not in one.specifier]
    assert wrong == [], "`make lock` writes it anew"
    assert set(TOOLS) <= set(LOCKED)


def test_every_package_of_the_lock_has_hashes_and_none_names_a_registry() -> None:
    text = LOCK.read_text()
    assert LOCKED
    assert all(locked(name, text) for name in LOCKED)
    assert "://" not in text
    assert str(Path.home()) not in text
