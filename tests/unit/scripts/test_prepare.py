"""Preparing a checkout: what is missing is found or named, and nothing is done twice."""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import os
import shutil
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from scripts import debian, pinned_jars, prepare, steps
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


@pytest.mark.parametrize(("packages", "required"), [([JAVA, GCC], True), ([GCC], False)])
def test_without_root_what_is_missing_is_named_with_its_command(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    packages: list[SystemPackage],
    required: bool,
) -> None:
    monkeypatch.setattr(debian, "_root_prefix", lambda: None)
    with pytest.raises(SystemExit) if required else contextlib.nullcontext():
        install_system_packages(packages)
    assert shell.commands == []
    said = "".join(capsys.readouterr())
    assert f"apt-get install -y --no-install-recommends {' '.join(one.name for one in packages)}" in said


@pytest.mark.parametrize(
    ("group", "user", "compile_wanted", "required", "optional", "not_wanted"),
    [
        ("demo", 0, True, {"default-jre-headless"}, {"gcc"}, {"mariadb-server-core", "debootstrap", "chromium"}),
        ("demo", 0, False, {"default-jre-headless"}, set(), {"gcc"}),
        ("demo-mysql", 0, False, {"mariadb-server-core", "mariadb-client-core"}, set(), {"debootstrap"}),
        ("demo-postgres", 0, False, set(), set(), {"mariadb-server-core", "debootstrap"}),
        ("dev", 0, False, set(), {"mariadb-server-core", "mariadb-client", "debootstrap", "chromium"}, set()),
        ("dev", 1000, False, set(), {"mariadb-server-core"}, {"debootstrap"}),
    ],
)
def test_each_group_looks_for_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
    group: str,
    user: int,
    compile_wanted: bool,
    required: set[str],
    optional: set[str],
    not_wanted: set[str],
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    monkeypatch.setattr(os, "geteuid", lambda: user)
    found = {one.name: one.required for one in debian.missing_system_packages(group, compile_wanted=compile_wanted)}
    assert required <= {name for name in found if found[name]}
    assert optional <= {name for name in found if not found[name]}
    assert not_wanted.isdisjoint(found)


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


@pytest.mark.parametrize(
    ("place", "failing", "size"),
    [
        ("MYSQL", "--foreign", "100 MB"),
        ("POSTGRES", "--simulate", "20 MB"),
        ("POSTGRES", "sh", "20 MB"),
        ("REDIS", "sh", "1.5 MB"),
    ],
)
def test_a_server_that_cannot_be_fetched_is_reported_with_the_reason_and_leaves_nothing(
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    place: str,
    failing: str,
    size: str,
) -> None:
    monkeypatch.setattr(prepare, place, tmp_path / "server")
    monkeypatch.setattr(prepare, "debian_mirror", lambda: debian.Mirror("http://debian.example/debian/", ""))
    shell.output = "Inst postgresql-15 (15.1 Debian [amd64])\nE: no such package\n"
    shell.failing = failing
    assert getattr(prepare, f"make_{place.lower()}")() is False
    said = capsys.readouterr()
    assert f"about {size}" in said.out
    assert "E: no such package" in said.err
    assert not (tmp_path / "server").exists()


@pytest.mark.parametrize(
    ("arguments", "switch", "oldest", "said"),
    [
        ([], "", (3, 11), "demo|demo-mysql|demo-postgres|dev"),
        (["everything"], "", (3, 11), "demo|demo-mysql|demo-postgres|dev"),
        (["demo", "dev"], "", (3, 11), "demo|demo-mysql|demo-postgres|dev"),
        (["demo"], "maybe", (3, 11), "'maybe'"),
        (["demo"], "", (99, 0), "make PYTHON="),
    ],
)
def test_a_call_that_cannot_be_followed_is_refused(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    switch: str,
    oldest: tuple[int, int],
    said: str,
) -> None:
    monkeypatch.setenv("WORMHOLE_BUILD_EXT", switch)
    monkeypatch.setattr(prepare, "OLDEST", oldest)
    with pytest.raises(SystemExit):
        prepare.main(arguments)
    assert said in capsys.readouterr().err


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
    redis = lambda: prepare._stamp("redis", prepare.redis_digest())  # noqa: E731
    monkeypatch.setattr(prepare, "prepare_redis", redis)
    pooler = lambda: prepare._stamp("pgbouncer", prepare.pooler_digest())  # noqa: E731
    monkeypatch.setattr(prepare, "prepare_pooler", pooler)
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


def test_what_waits_for_the_network_runs_beside_what_waits_for_the_machine(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = threading.Barrier(2, timeout=60)
    monkeypatch.setattr(prepare, "install_system_packages", lambda missing: both.wait())
    monkeypatch.setattr(prepare, "make_environment", lambda: None)
    monkeypatch.setattr(prepare, "install_packages", lambda group: both.wait())
    monkeypatch.setattr(prepare, "_stamp", lambda name, digest: None)
    monkeypatch.setattr(prepare, "missing_servers", lambda group: [both.wait])
    monkeypatch.setattr(prepare, "build_extensions", lambda mode: both.wait() or steps.stop("no compiler"))
    with pytest.raises(SystemExit):
        prepare.main(["dev"])


def test_a_required_system_package_is_installed_before_anything_else(
    checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    missing = [SystemPackage("python3-venv", "makes the virtual environment", required=True)]
    monkeypatch.setattr(prepare, "missing_system_packages", lambda group, compile_wanted: missing)
    monkeypatch.setattr(prepare, "install_system_packages", lambda missing: steps.stop("not root"))
    monkeypatch.setattr(prepare, "make_environment", lambda: done.append("environment"))
    with pytest.raises(SystemExit):
        prepare.main(["dev"])
    assert done == []


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


@pytest.mark.parametrize("elsewhere", ["cache", ".venv/lib/python3.11/site-packages/pyspark/jars"])
def test_jars_that_the_machine_has_are_not_fetched(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, elsewhere: str
) -> None:
    pin = pinned_jars.Pin(hashlib.sha256(b"one").hexdigest(), "org.one", "one", "1")
    monkeypatch.setattr(pinned_jars, "pins", lambda text: [pin])

    def fetch(target: Path, _: object) -> str:
        target.mkdir(parents=True)
        (target / pin.name).write_bytes(b"one")
        return ""

    if elsewhere == "cache":  # another checkout has put them there
        (checkout / ".venv").mkdir()
        monkeypatch.setattr(pinned_jars, "fetch", fetch)
        prepare.prepare_zookeeper()
        shutil.rmtree(prepare.ZOOKEEPER)
    else:
        fetch(checkout / elsewhere, None)
    monkeypatch.setattr(pinned_jars, "fetch", lambda *_: pytest.fail("there is nothing to fetch"))
    prepare.prepare_zookeeper()
    assert (prepare.ZOOKEEPER / pin.name).read_bytes() == b"one"


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
