"""Preparing a checkout: what is missing is found or named, and nothing is done twice."""

from __future__ import annotations

import hashlib
import importlib.metadata
import io
import os
import shutil
import subprocess
import tarfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import debian, pinned_jars, prepare
from scripts.debian import SystemPackage, install_system_packages
from scripts.prepare import extension_of, hot_sources, stale


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    folder = tmp_path / "wormhole" / "decode"
    folder.mkdir(parents=True)
    for name in ("hot.py", "hot.pxd", "cold.py", "lonely.pxd"):
        (folder / name).write_text("")
    return tmp_path


def dated(path: Path, seconds: int) -> Path:
    path.touch()
    os.utime(path, (seconds, seconds))
    return path


def test_a_module_is_hot_when_a_pxd_is_beside_it(tree: Path) -> None:
    assert hot_sources(tree) == [tree / "wormhole" / "decode" / "hot.py"]


@pytest.mark.parametrize(("py", "pxd", "expected"), [(10, 10, False), (30, 10, True), (10, 30, True)])
def test_a_compiled_file_older_than_either_source_is_stale(tree: Path, py: int, pxd: int, expected: bool) -> None:
    (source,) = hot_sources(tree)
    assert extension_of(source) is None
    assert not stale(source)
    compiled = dated(source.with_suffix(".cpython-311-x86_64-linux-gnu.so"), 20)
    dated(source, py)
    dated(source.with_suffix(".pxd"), pxd)
    assert extension_of(source) == compiled
    assert stale(source) is expected


class Shell:
    """Stands in for the commands that `install_system_packages` runs; ``failing`` is a word of the one that fails."""

    def __init__(self, failing: str = "") -> None:
        self.failing = failing
        self.output = "Need to get 45 MB of archives.\nE: no such package\n"
        self.commands: list[list[str]] = []
        self.environments: list[dict[str, str]] = []

    def __call__(self, command: Sequence[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
        words = [str(word) for word in command]
        self.commands.append(words)
        self.environments.append(environment)
        status = int(bool(self.failing) and self.failing in words)
        return subprocess.CompletedProcess(words, status, self.output)


JAVA = SystemPackage("default-jre-headless", "runs the embedded ZooKeeper", required=True)
GCC = SystemPackage("gcc", "compiles the hot modules", required=False)


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell = Shell()
    for module in (prepare, debian):
        monkeypatch.setattr(module, "quietly", shell)
    monkeypatch.setattr(debian, "_root_prefix", list)
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/usr/bin/{name}")
    return shell


def test_root_gets_what_is_missing_with_the_reason_and_the_size(
    shell: Shell, capsys: pytest.CaptureFixture[str]
) -> None:
    install_system_packages([JAVA, GCC])
    assert shell.commands[-1][-1] == "-y"
    assert {"default-jre-headless", "gcc"} <= set(shell.commands[-1])
    said = capsys.readouterr().out
    assert "default-jre-headless is missing: runs the embedded ZooKeeper" in said
    assert "Need to get 45 MB" in said


def test_nothing_missing_runs_nothing(shell: Shell) -> None:
    install_system_packages([])
    assert shell.commands == []


def test_without_root_a_required_package_is_named_with_its_command(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(debian, "_root_prefix", lambda: None)
    with pytest.raises(SystemExit) as ended:
        install_system_packages([JAVA, GCC])
    assert ended.value.code == 1
    assert shell.commands == []
    assert "apt-get install -y --no-install-recommends default-jre-headless gcc" in capsys.readouterr().err


def test_without_root_an_optional_package_is_only_named(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(debian, "_root_prefix", lambda: None)
    install_system_packages([GCC])
    said = capsys.readouterr().out
    assert "going on without gcc" in said
    assert "apt-get install" in said


def test_apt_that_fails_shows_its_own_words(shell: Shell, capsys: pytest.CaptureFixture[str]) -> None:
    shell.failing = "-y"
    with pytest.raises(SystemExit):
        install_system_packages([JAVA])
    error = capsys.readouterr().err
    assert "E: no such package" in error
    assert "default-jre-headless" in error


def test_java_and_the_compiler_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    found = {package.name: package.required for package in debian.missing_system_packages("demo", compile_wanted=True)}
    assert found["default-jre-headless"] is True
    assert found["gcc"] is False
    without = debian.missing_system_packages("demo", compile_wanted=False)
    assert "gcc" not in {package.name for package in without}


def test_each_verb_looks_for_its_own_database_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(os, "geteuid", lambda: 0)

    def wanted(group: str) -> dict[str, bool]:
        found = debian.missing_system_packages(group, compile_wanted=False)
        return {p.name: p.required for p in found if "mariadb" in p.name or p.name == "debootstrap"}

    assert wanted("demo") == {}
    assert wanted("demo-mysql") == {"mariadb-server-core": True, "mariadb-client-core": True}
    assert wanted("demo-postgres") == {}
    assert wanted("dev") == {"mariadb-server-core": False, "mariadb-client": False, "debootstrap": False}
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "debootstrap" not in wanted("dev")


def test_only_developing_asks_for_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)

    def wanted(group: str) -> dict[str, bool]:
        return {p.name: p.required for p in debian.missing_system_packages(group, compile_wanted=False)}

    assert not wanted("dev")["chromium"], "tests are skipped without it"
    assert not wanted("dev")["fonts-liberation"]
    assert "chromium" not in wanted("demo")


@pytest.mark.parametrize(
    ("sources", "keyring"),
    [
        ("Types: deb\nURIs: x\nSigned-By: /keys/debian.gpg\n", "/keys/debian.gpg"),
        ("deb [arch=amd64 signed-by=/keys/one.gpg,/keys/two.gpg] x y main\n", "/keys/one.gpg"),
        ("deb x y main\n", ""),
    ],
)
def test_debian_is_fetched_from_where_apt_gets_it(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sources: str, keyring: str
) -> None:
    entry = tmp_path / "debian.sources"
    entry.write_text(sources)
    shell.output = f"http://debian.example/debian/ {entry}:1\nhttp://debian.example/debian/ {entry}:2\n"
    assert debian.debian_mirror() == debian.Mirror("http://debian.example/debian/", keyring)
    shell.output = ""
    assert debian.debian_mirror() is None


def test_a_mysql_that_cannot_be_fetched_is_reported_with_the_reason_and_leaves_nothing(
    shell: Shell, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(prepare, "MYSQL", checkout / ".venv" / "mysql-server")
    monkeypatch.setattr(prepare, "debian_mirror", lambda: debian.Mirror("http://debian.example/debian/", ""))
    shell.failing = "--foreign"
    assert prepare.make_mysql() is False
    said = capsys.readouterr()
    assert "about 100 MB" in said.out
    assert "E: no such package" in said.err
    assert not (checkout / ".venv" / "mysql-server").exists()


@pytest.mark.parametrize("failing", ["--simulate", "sh"])
def test_a_postgres_that_cannot_be_fetched_is_reported_with_the_reason_and_leaves_nothing(
    failing: str,
    shell: Shell,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(prepare, "POSTGRES", checkout / ".venv" / "postgres-server")
    shell.output = "Inst postgresql-15 (15.1 Debian [amd64])\nE: no such package\n"
    shell.failing = failing
    assert prepare.make_postgres() is False
    said = capsys.readouterr()
    assert "about 20 MB" in said.out
    assert "E: no such package" in said.err
    assert not (checkout / ".venv" / "postgres-server").exists()


def test_mysql_is_made_once_and_tried_again_when_it_failed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").touch()
    for step in ("make_environment", "install_packages", "build_extensions"):
        monkeypatch.setattr(prepare, step, lambda *_: None)
    works = False
    made: list[bool] = []

    def make() -> bool:
        made.append(works)
        return works

    monkeypatch.setattr(prepare, "without_chroot", lambda: "")
    monkeypatch.setattr(prepare, "make_mysql", make)
    assert prepare.main(["demo"]) == 0  # which does not need it
    assert made == []
    assert prepare.main(["dev"]) == 0
    works = True
    assert prepare.main(["dev"]) == 0
    assert prepare.main(["dev"]) == 0
    assert made == [False, True]
    monkeypatch.setattr(prepare, "without_chroot", lambda: "only root may")
    capsys.readouterr()
    assert prepare.main(["dev"]) == 0
    assert "the tests on it are skipped: only root may" in capsys.readouterr().out
    assert prepare.main(["dev"]) == 0
    assert "only root may" not in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["everything"], ["demo", "dev"]])
def test_an_unknown_group_is_a_usage_error(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        prepare.main(arguments)
    assert "demo|demo-mysql|demo-postgres|dev" in capsys.readouterr().err


def test_an_unknown_switch_value_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("WORMHOLE_BUILD_EXT", "maybe")
    with pytest.raises(SystemExit):
        prepare.main(["demo"])
    assert "'maybe'" in capsys.readouterr().err


def test_an_old_python_gets_the_next_step(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(prepare, "OLDEST", (99, 0))
    with pytest.raises(SystemExit):
        prepare.main(["demo"])
    assert "make PYTHON=" in capsys.readouterr().err


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small checkout in which every step is recorded instead of done."""
    for name in ("pyproject.toml", "requirements.lock", "setup.py"):
        (tmp_path / name).write_text(name)
    monkeypatch.delenv("WORMHOLE_BUILD_EXT", raising=False)
    monkeypatch.setattr(prepare, "ROOT", tmp_path)
    monkeypatch.setattr(prepare, "hot_sources", lambda: hot_sources(tmp_path))
    monkeypatch.setattr(prepare, "VENV", tmp_path / ".venv")
    monkeypatch.setattr(prepare, "PYTHON", tmp_path / ".venv" / "bin" / "python")
    monkeypatch.setattr(prepare, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setattr(prepare, "missing_system_packages", lambda group, compile_wanted: [])
    monkeypatch.setattr(prepare, "without_chroot", lambda: "not in this test")
    (tmp_path / "postgres-jars.txt").touch()
    monkeypatch.setattr(pinned_jars, "POSTGRES", tmp_path / "postgres-jars.txt")
    stamp = lambda: prepare._stamp("postgres", prepare.postgres_digest())  # noqa: E731
    monkeypatch.setattr(prepare, "prepare_postgres", stamp)
    newer = lambda: prepare._stamp("newer-postgres", prepare.newer_postgres_digest())  # noqa: E731
    monkeypatch.setattr(prepare, "prepare_newer_postgres", newer)
    monkeypatch.setattr(prepare, "prepare_kept", lambda: prepare._stamp("kept", prepare.kept_digest()))
    monkeypatch.setattr(prepare, "ZOOKEEPER", tmp_path / ".venv" / "share" / "wormhole" / "zookeeper")
    monkeypatch.setattr(prepare, "DEBIAN_ZOOKEEPER", tmp_path / "debian.jar")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pinned_jars, "fetch", lambda target, pins: "")
    return tmp_path


def test_a_step_is_done_again_only_when_what_it_was_made_from_changed(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def environment() -> None:
        (checkout / ".venv" / "bin").mkdir(parents=True, exist_ok=True)
        (checkout / ".venv" / "bin" / "python").touch()
        done.append("environment")

    monkeypatch.setattr(prepare, "make_environment", environment)
    monkeypatch.setattr(prepare, "install_packages", lambda group: done.append(f"packages {group}"))
    monkeypatch.setattr(prepare, "build_extensions", lambda mode: done.append(f"extensions {mode}"))

    def steps(group: str) -> list[str]:
        done.clear()
        assert prepare.main([group]) == 0
        return list(done)

    assert steps("dev") == ["environment", "packages dev", "extensions "]
    assert steps("dev") == []
    assert steps("demo") == []  # dev holds everything that demo needs
    (checkout / "setup.py").write_text("changed")
    assert steps("demo") == ["extensions cached"]
    (checkout / "requirements.lock").write_text("changed")
    assert steps("demo") == ["environment", "packages demo", "extensions cached"]
    assert steps("dev") == ["environment", "packages dev", "extensions "]
    monkeypatch.setenv("WORMHOLE_BUILD_EXT", "no")
    assert steps("dev") == ["extensions no"]


def test_a_pip_that_cannot_fetch_uv_ends_with_one_clear_message(
    shell: Shell, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entries = "".join(f"{name}==1 \\\n    --hash=sha256:{name}\n" for name in prepare.TOOLS)
    (checkout / "requirements.lock").write_text(entries)
    shell.failing = "--require-hashes"
    with pytest.raises(SystemExit) as ended:
        prepare.install_packages("dev")
    assert ended.value.code == 1
    assert len(shell.commands) == 1
    said = capsys.readouterr().err
    assert "E: no such package" in said
    assert "pip could not install uv, setuptools, which" in said
    assert "pip config list" in said


@pytest.mark.parametrize(
    ("version", "made"),
    [("23.0.1", "--without-pip"), ("22.3", "--without-pip"), ("22.2.2", "--clear"), (None, "--clear")],
)
def test_an_environment_gets_a_pip_of_its_own_only_where_no_other_installs_into_it(
    shell: Shell, checkout: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, made: str
) -> None:
    def version_of(_: str) -> str:
        if version is None:
            raise importlib.metadata.PackageNotFoundError
        return version

    monkeypatch.setattr(importlib.metadata, "version", version_of)
    prepare.make_environment()
    assert shell.commands[-1][-2] == made
    assert prepare.pip()[1:] == ["-m", "pip", "--python", prepare.PYTHON]
    (checkout / ".venv" / "lib" / "python3.11" / "site-packages" / "pip").mkdir(parents=True)
    assert prepare.pip() == [prepare.PYTHON, "-m", "pip"]


def test_packages_are_installed_by_hash_from_the_registry_that_pip_asks(
    shell: Shell, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = "".join(f"{name}==1 \\\n    --hash=sha256:{name}\n" for name in prepare.TOOLS)
    (checkout / "requirements.lock").write_text(entries)
    monkeypatch.delenv("UV_DEFAULT_INDEX", raising=False)
    shell.output = "global.index-url='https://pip.example/simple'\n"
    prepare.install_packages("demo")
    packages = next(command for command in shell.commands if "--constraint" in command)
    assert "--require-hashes" in packages
    assert {"--extra=publisher", "--extra=rocksdb"} <= set(packages)
    assert shell.environments[shell.commands.index(packages)]["UV_DEFAULT_INDEX"] == "https://pip.example/simple"
    assert "--editable" in shell.commands[-1]
    assert "--no-deps" in shell.commands[-1], "nothing without a hash"


def test_the_jars_of_the_embedded_zookeeper_are_fetched_once(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / ".venv" / "bin").mkdir(parents=True)
    (checkout / ".venv" / "bin" / "python").touch()
    for step in ("make_environment", "install_packages", "build_extensions"):
        monkeypatch.setattr(prepare, step, lambda *_: None)
    problem = "Maven (`mvn`) is not installed"
    fetched: list[Path] = []

    def fetch(target: Path, _: object) -> str:
        fetched.append(target)
        return problem

    monkeypatch.setattr(pinned_jars, "fetch", fetch)
    with pytest.raises(SystemExit):
        prepare.main(["demo"])
    said = capsys.readouterr().err
    assert problem in said
    assert "apt-get install libzookeeper-java" in said
    assert "make build" in said
    (checkout / "debian.jar").touch()
    assert prepare.main(["demo"]) == 0
    assert "going on with the ZooKeeper of Debian" in capsys.readouterr().out
    problem = ""
    assert prepare.main(["demo"]) == 0
    assert prepare.main(["demo"]) == 0
    assert fetched == [prepare.ZOOKEEPER] * 3


def test_another_checkout_has_the_jars(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (checkout / ".venv").mkdir()
    pin = pinned_jars.Pin(hashlib.sha256(b"one").hexdigest(), "org.one", "one", "1")
    monkeypatch.setattr(pinned_jars, "pins", lambda text: [pin])

    def fetch(target: Path, _: object) -> str:
        target.mkdir(parents=True)
        (target / pin.name).write_bytes(b"one")
        return ""

    monkeypatch.setattr(pinned_jars, "fetch", fetch)
    prepare.prepare_zookeeper()
    shutil.rmtree(prepare.ZOOKEEPER)
    monkeypatch.setattr(pinned_jars, "fetch", lambda *_: pytest.fail("there is nothing to fetch"))
    prepare.prepare_zookeeper()
    assert (prepare.ZOOKEEPER / pin.name).read_bytes() == b"one"


def test_the_second_postgresql_is_what_its_jar_packs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another checkout takes the jar from the user's cache; what an earlier version unpacked is gone."""
    packed, target = io.BytesIO(), tmp_path / "postgres-18"
    with tarfile.open(fileobj=packed, mode="w:xz") as archive:
        (tmp_path / "program").write_text("one")
        archive.add(tmp_path / "program", "bin/postgres")
    jar = io.BytesIO()
    with zipfile.ZipFile(jar, "w") as files:
        files.writestr("META-INF/MANIFEST.MF", "")
        files.writestr("postgres-linux-x86_64.txz", packed.getvalue())
    pin = pinned_jars.Pin(hashlib.sha256(jar.getvalue()).hexdigest(), "org.one", "one", "1")

    def fetch(into: Path, _: object) -> str:
        into.mkdir(parents=True)
        (into / pin.name).write_bytes(jar.getvalue())
        return ""

    monkeypatch.setattr(pinned_jars, "pins", lambda text: [pin])
    monkeypatch.setattr(prepare, "NEWER_POSTGRES", target)
    monkeypatch.setattr(prepare, "VENV", tmp_path)
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(pinned_jars, "fetch", fetch)
    prepare.prepare_newer_postgres()
    (target / "bin" / "older").touch()
    monkeypatch.setattr(pinned_jars, "fetch", lambda *_: pytest.fail("there is nothing to fetch"))
    prepare.prepare_newer_postgres()
    assert {file.name: file.read_text() for file in (target / "bin").iterdir()} == {"postgres": "one"}


def test_without_the_second_postgresql_the_next_command_tries_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / ".venv").mkdir()
    monkeypatch.setattr(prepare, "VENV", tmp_path / ".venv")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(machine="x86_64"))
    monkeypatch.setattr(pinned_jars, "fetch", lambda *_: "Maven (`mvn`) is not installed")
    prepare.prepare_newer_postgres()
    assert "Maven (`mvn`) is not installed" in capsys.readouterr().out
    assert not list((tmp_path / ".venv").iterdir())


def test_an_installed_pyspark_has_the_jars(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    jars = checkout / ".venv" / "lib" / "python3.11" / "site-packages" / "pyspark" / "jars"
    jars.mkdir(parents=True)
    (jars / "one-1.jar").write_bytes(b"one")
    pin = pinned_jars.Pin(hashlib.sha256(b"one").hexdigest(), "org.one", "one", "1")
    monkeypatch.setattr(pinned_jars, "pins", lambda text: [pin])
    monkeypatch.setattr(pinned_jars, "fetch", lambda *_: pytest.fail("there is nothing to fetch"))
    prepare.prepare_zookeeper()
    assert [jar.name for jar in prepare.ZOOKEEPER.iterdir()] == ["one-1.jar"]


class Compiler(Shell):
    """Compiles the hot modules of a checkout, unless it fails."""

    def __init__(self, checkout: Path) -> None:
        super().__init__()
        self.root = checkout

    def __call__(self, command: Sequence[str | Path], **environment: str) -> subprocess.CompletedProcess[str]:
        done = super().__call__(command, **environment)
        if "build_ext" in done.args and not done.returncode:
            for source in hot_sources(self.root):
                source.with_suffix(".cpython-311.so").write_bytes(b"compiled " + source.read_bytes())
        return done

    @property
    def compiled(self) -> int:
        """How often it was started."""
        return sum("build_ext" in command for command in self.commands)


@pytest.fixture
def compiler(tree: Path, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    compiler = Compiler(checkout)
    monkeypatch.setattr(prepare, "quietly", compiler)
    monkeypatch.setenv("XDG_CACHE_HOME", str(checkout / "cache"))
    (checkout / "requirements.lock").write_text("cython==3 \\\n    --hash=sha256:aa\n")
    return compiler


def remove_compiled(checkout: Path) -> None:
    for source in hot_sources(checkout):
        source.with_suffix(".cpython-311.so").unlink()


def test_the_same_sources_are_compiled_once(compiler: Compiler, checkout: Path) -> None:
    prepare.build_extensions("")
    (source,) = hot_sources(checkout)
    for mode in ("", "yes", "cached"):
        remove_compiled(checkout)
        prepare.build_extensions(mode)
        assert extension_of(source)
        assert not stale(source)
    assert compiler.compiled == 1
    source.write_text("changed = 1")
    prepare.build_extensions("")
    assert compiler.compiled == 2
    source.write_text("")
    prepare.build_extensions("")
    assert compiler.compiled == 2, "back on the first branch"
    compiled = extension_of(source)
    assert compiled
    assert compiled.read_bytes() == b"compiled "


def test_a_demo_does_not_wait_for_the_compiler(
    compiler: Compiler, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (source,) = hot_sources(checkout)
    prepare.build_extensions("cached")
    assert compiler.compiled == 0
    assert extension_of(source) is None
    assert "`make build` compiles them" in capsys.readouterr().out


def test_what_did_not_compile_is_not_kept(
    compiler: Compiler, checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Compiler, "__call__", Shell.__call__)  # ends well, and has compiled nothing: they are optional
    prepare.build_extensions("")
    assert "they run interpreted" in capsys.readouterr().out
    assert not (checkout / "cache").exists()
    with pytest.raises(SystemExit):
        prepare.build_extensions("yes")


def test_a_cache_that_cannot_be_written_does_not_stop_anything(
    compiler: Compiler, checkout: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (checkout / "cache").write_text("a file")
    prepare.build_extensions("yes")
    assert extension_of(*hot_sources(checkout))
    assert "not kept for other checkouts" in capsys.readouterr().out


def test_a_failed_step_leaves_no_stamp(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(group: str) -> None:
        raise SystemExit(1)

    monkeypatch.setattr(prepare, "make_environment", (checkout / ".venv").mkdir)
    monkeypatch.setattr(prepare, "install_packages", broken)
    with pytest.raises(SystemExit):
        prepare.main(["dev"])
    assert list((checkout / ".venv").iterdir()) == []
