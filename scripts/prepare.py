"""Prepare this checkout for one of the Makefile's verbs, on a machine that may have nothing but Python.

    python3 -m scripts.prepare demo|demo-mysql|demo-postgres|dev

It makes the virtual environment ``.venv``, installs the locked packages the verb needs, puts the compiled forms of the
hot modules in place (from the user's cache, else compiled; a demo does not wait for a compiler), and installs Debian
packages that are missing when it may (root, or sudo that asks for no password); otherwise it names them with the
command to run, and stops. What it fetches, why, and how big it is, is printed before it is fetched. For the tests it
also puts a MySQL server with a system of its own into a folder there (root only), and for them and its demo a
PostgreSQL server; the tests get a second one, of a later version, a Redis and a PgBouncer. For the tests it makes what
their servers and JVMs start from. Each finished step leaves a stamp in ``.venv`` that holds a hash of what the step was
made from, so that a second run does nothing, needs no network and takes a fraction of a second.

Standard library only, and readable by an older Python: it must be able to say that the Python is too old.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from scripts import compiled_cache, pinned_jars
from scripts.debian import (
    DEBIAN_ZOOKEEPER,
    debian_mirror,
    install_system_packages,
    missing_system_packages,
    unpack_debian,
    unpack_packages,
    without_chroot,
)
from scripts.registry import locked, uv_environment
from scripts.steps import ROOT, VENV, quietly, say, stop

__all__ = [
    "LOCK",
    "PACKAGES",
    "ROOT",
    "TOOLS",
    "UV",
    "extension_of",
    "hot_sources",
    "main",
    "registry_environment",
    "stale",
]

PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
MYSQL = VENV / "mysql-server"
POSTGRES = VENV / "postgres-server"
NEWER_POSTGRES = VENV / "postgres-18"
REDIS = VENV / "redis-server"
POOLER = VENV / "pgbouncer"
ZOOKEEPER = VENV / "share" / "wormhole" / "zookeeper"
LOCK = ROOT / "requirements.lock"
PACKAGES = (
    "wormhole",
    "caravan",
    "datastores",
    "publisher",
    "subscriber_sdk",
    "monitor",
    "spark_replay",
    "sinks",
    "wormholectl",
)
OLDEST = (3, 11)

# The extras of sinks whose store has a client of its own.
SINKS = ("duckdb", "kafka", "nats", "redis", "webhook")

# What each verb installs: the extras of pyproject.toml, why, and the size of the download.
GROUPS = {
    "demo": (("publisher", "rocksdb"), "gRPC, the ZooKeeper client, the RocksDB binding", "45 MB"),
    "demo-mysql": (("publisher", "mysql"), "gRPC, the ZooKeeper client, what talks to MySQL", "30 MB"),
    "demo-postgres": (("publisher", "postgres"), "gRPC, the ZooKeeper client, what talks to PostgreSQL", "30 MB"),
    "dev": (
        ("publisher", "rocksdb", "mysql", "postgres", "spark", "delta", "iceberg", "sqlalchemy", *SINKS, "dev"),
        "the packages of a publisher and of sinks, Spark, and what tests and checks the code",
        "830 MB",
    ),
}
# What pip installs: uv installs everything else, and builds with setuptools.
TOOLS = ("uv", "setuptools")
# The first pip that installs into another environment (`--python`).
PIP_FOR_OTHERS = (22, 3)


MYSQL_PACKAGES = ("mysql-server-core", "mysql-client-core")
POSTGRES_PACKAGE = "postgresql-15"
REDIS_PACKAGE = "redis-server"
POOLER_PACKAGE = "pgbouncer"


# --- hot modules: a .py with a .pxd beside it -------------------------------------------------------------------


def hot_sources(root: Path = ROOT) -> list[Path]:
    """The ``.py`` of every hot module under ``root``, in a stable order."""
    pxds = (pxd for package in PACKAGES for pxd in (root / package).rglob("*.pxd"))
    return sorted(py for py in (pxd.with_suffix(".py") for pxd in pxds) if py.exists())


def extension_of(source: Path) -> Path | None:
    """The compiled file that hides ``source``, or None when it runs interpreted."""
    return next(iter(sorted(source.parent.glob(f"{source.stem}.*.so"))), None)


def stale(source: Path) -> bool:
    """Whether the compiled file of ``source`` is older than its ``.py`` or ``.pxd``: the edit would not run."""
    compiled = extension_of(source)
    if compiled is None:
        return False
    made = compiled.stat().st_mtime_ns
    return any(made < part.stat().st_mtime_ns for part in (source, source.with_suffix(".pxd")))


# --- MySQL, which Debian 12 does not have -------------------------------------------------------------------------


def make_mysql() -> bool:
    """Put a MySQL server and its clients, of Debian's unstable suite, into a folder with all the libraries that they
    need. Returns whether it worked.
    """
    mirror = debian_mirror()
    if mirror is None:
        say("going on without a private MySQL, the tests on it are skipped: apt knows no Debian mirror")
        return False
    say(f"fetching a MySQL server for the tests, with a system around it, from {mirror.address} "
        "(to fetch: about 100 MB, 490 MB unpacked; half a minute to two)")  # fmt: skip
    started = time.monotonic()
    draft = MYSQL.with_name(f"{MYSQL.name}.draft")
    outcome = unpack_debian(draft, "unstable", MYSQL_PACKAGES, mirror)
    if outcome.returncode == 0:
        outcome = quietly(["chroot", draft, "/usr/sbin/mysqld", "--version"])
    if outcome.returncode:
        print("\n".join(outcome.stdout.splitlines()[-15:]), file=sys.stderr)
        say("going on without MySQL (the message stands above): the next make command tries again")
        return False
    shutil.rmtree(MYSQL, ignore_errors=True)
    draft.rename(MYSQL)
    say(f"{outcome.stdout.strip()}, after {time.monotonic() - started:.0f} s")
    return True


def prepare_mysql() -> None:
    """Make it where that is possible; otherwise a message is printed once."""
    if reason := without_chroot():
        say(f"going on without a private MySQL, the tests on it are skipped: {reason}")
    elif not make_mysql():
        return
    _stamp("mysql", mysql_digest())


# --- PostgreSQL, PgBouncer and Redis, whose Debian packages would start a service ---------------------------------


def prepare_postgres() -> None:
    """Unpack Debian's PostgreSQL into the environment, where the machine has none."""
    if not shutil.which("apt-get"):
        say("going on without a private PostgreSQL, the tests on it are skipped: this machine has no apt-get")
    elif not any(Path("/usr/lib/postgresql").glob("*/bin/postgres")) and not make_postgres():
        return
    _stamp("postgres", postgres_digest())


def make_postgres() -> bool:
    """Put a PostgreSQL server and its clients into a folder. Returns whether it worked."""
    return _unpacked("PostgreSQL", POSTGRES, POSTGRES_PACKAGE, "about 20 MB, 70 MB unpacked")


def prepare_redis() -> None:
    """Unpack Debian's Redis into the environment, where the machine has none."""
    if not shutil.which("apt-get"):
        say("going on without a private Redis, the tests on it are skipped: this machine has no apt-get")
    elif not shutil.which("redis-server") and not make_redis():
        return
    _stamp("redis", redis_digest())


def make_redis() -> bool:
    """Put a Redis server and its tools into a folder. Returns whether it worked."""
    return _unpacked("Redis", REDIS, REDIS_PACKAGE, "about 1.5 MB, 5 MB unpacked")


def prepare_pooler() -> None:
    """Unpack Debian's PgBouncer into the environment, where the machine has none."""
    if not shutil.which("apt-get"):
        say("going on without a private PgBouncer, the tests on it are skipped: this machine has no apt-get")
    elif not shutil.which("pgbouncer") and not _unpacked("PgBouncer", POOLER, POOLER_PACKAGE, "about 1 MB"):
        return
    _stamp("pgbouncer", pooler_digest())


def _unpacked(title: str, folder: Path, package: str, size: str) -> bool:
    """Put a Debian package into ``folder``, with the libraries that this machine lacks. Returns whether it worked."""
    say(f"fetching a private {title} server; nothing is installed (to fetch: {size})")
    started = time.monotonic()
    draft = folder.with_name(f"{folder.name}.draft")
    shutil.rmtree(draft, ignore_errors=True)
    outcome = unpack_packages(draft, package)
    if outcome.returncode:
        print("\n".join(outcome.stdout.splitlines()[-15:]), file=sys.stderr)
        say(f"going on without {title} (the message stands above): the next make command tries again")
        return False
    shutil.rmtree(folder, ignore_errors=True)
    draft.rename(folder)
    say(f"unpacked {title} after {time.monotonic() - started:.0f} s")
    return True


def prepare_newer_postgres() -> None:
    """Unpack the pinned PostgreSQL into the environment, beside the machine's, from the user's cache or from Maven."""
    pins = pinned_jars.pins(pinned_jars.POSTGRES.read_text())
    kept = compiled_cache.place(os.environ).with_name("postgres")
    say(
        f"unpacking {NEWER_POSTGRES.name} for the tests (to fetch at the first time: 15 MB, with Maven; 60 MB unpacked)"
    )
    if os.uname().machine != "x86_64":
        say(f"going on without {NEWER_POSTGRES.name}, its tests are skipped: the archive is for x86_64")
    else:
        with tempfile.TemporaryDirectory() as folder:
            jars = Path(folder) / "jars"
            if pinned_jars.take(kept, jars, pins):
                if problem := pinned_jars.fetch(jars, pins):
                    say(f"going on without {NEWER_POSTGRES.name}, its tests are skipped: {problem}")
                    return
                with contextlib.suppress(OSError):
                    pinned_jars.take(jars, kept, pins)
            unpack_programs(jars / pins[0].name, NEWER_POSTGRES)
    _stamp("newer-postgres", newer_postgres_digest())


def unpack_programs(jar: Path, target: Path) -> None:
    """Put the archive of programs that ``jar`` holds, ``bin``, ``lib`` and ``share``, into ``target``."""
    draft = target.with_name(f"{target.name}.draft")
    for folder in (draft, target):
        shutil.rmtree(folder, ignore_errors=True)
    with zipfile.ZipFile(jar) as files:
        (name,) = (name for name in files.namelist() if name.endswith(".txz"))
        with files.open(name) as packed, tarfile.open(fileobj=packed, mode="r|xz") as archive:
            archive.extraction_filter = getattr(tarfile, "data_filter", None)  # older Pythons have none
            archive.extractall(draft)
    draft.rename(target)


# --- the embedded ZooKeeper --------------------------------------------------------------------------------------


def prepare_zookeeper() -> None:
    """Put the pinned jars where the embedded server looks first: PySpark's, another checkout's, or from Maven."""
    pins = pinned_jars.pins(pinned_jars.ZOOKEEPER.read_text())
    pyspark = next(VENV.glob("lib/python*/site-packages/pyspark/jars"), VENV)
    kept = compiled_cache.place(os.environ).with_name("zookeeper")
    if pinned_jars.take(pyspark, ZOOKEEPER, pins) and pinned_jars.take(kept, ZOOKEEPER, pins):
        say("fetching the jars of the embedded ZooKeeper with Maven (to fetch: 10 MB, at the first time 20 MB more)")
        started = time.monotonic()
        if problem := pinned_jars.fetch(ZOOKEEPER, pins):
            if pyspark == VENV and not DEBIAN_ZOOKEEPER.exists():
                stop(f"no jars for the embedded ZooKeeper: {problem}\n"
                     "  Repeat the same make command when Maven is installed and reaches a repository,\n"
                     "  or after:  apt-get install libzookeeper-java  (as root)\n"
                     "  or after:  make build  (installs PySpark, 530 MB, which has them)")  # fmt: skip
            say(f"going on with the ZooKeeper of {'Debian' if pyspark == VENV else 'PySpark'}: {problem}")
            return
        say(f"fetched them in {time.monotonic() - started:.0f} s")
        with contextlib.suppress(OSError):
            pinned_jars.take(ZOOKEEPER, kept, pins)
    _stamp("zookeeper", zookeeper_digest())


# --- what the tests start from ----------------------------------------------------------------------------------


def prepare_kept() -> None:
    """Make the data folders of the tests' servers and the archives of their JVMs' classes, so that no test does."""
    say("making data folders of servers and archives of Java's classes for the tests (to fetch: RocksJava, 92 MB, and "
        "Kafka, 46 MB)")  # fmt: skip
    outcome = quietly([PYTHON, "-m", "tests.support.kept"])
    if outcome.returncode:
        print("\n".join(outcome.stdout.splitlines()[-15:]), file=sys.stderr)
        say("going on without (the message stands above): the next make command tries again")
        return
    _stamp("kept", kept_digest())


# --- steps and their stamps -------------------------------------------------------------------------------------


def _digest(parts: Sequence[str], files: Sequence[Path]) -> str:
    state = hashlib.sha256("\0".join(parts).encode())
    for file in files:
        state.update(f"\0{file.relative_to(ROOT)}\0".encode())
        state.update(file.read_bytes())
    return state.hexdigest()


def packages_digest(group: str) -> str:
    """What the installed packages were made from."""
    files = [ROOT / "pyproject.toml", LOCK]
    return _digest([str(ROOT), group, repr(GROUPS[group])], files)


def mysql_digest() -> str:
    """What the private MySQL was made from, or why there is none."""
    return _digest([str(ROOT), "mysql", without_chroot(), *MYSQL_PACKAGES], [])


def postgres_digest() -> str:
    """What the private PostgreSQL was made from."""
    return _digest([str(ROOT), "postgres", POSTGRES_PACKAGE], [])


def redis_digest() -> str:
    """What the private Redis was made from."""
    return _digest([str(ROOT), "redis", REDIS_PACKAGE], [])


def pooler_digest() -> str:
    """What the private PgBouncer was made from."""
    return _digest([str(ROOT), "pgbouncer", POOLER_PACKAGE], [])


def newer_postgres_digest() -> str:
    """What the second PostgreSQL of the tests must be."""
    return _digest([str(ROOT), "newer postgres", os.uname().machine], [pinned_jars.POSTGRES])


def zookeeper_digest() -> str:
    """What the jars of the embedded ZooKeeper must be."""
    return hashlib.sha256(pinned_jars.ZOOKEEPER.read_bytes()).hexdigest()


def kept_digest() -> str:
    """What the tests' servers and JVMs start from was made with."""
    java = os.path.realpath(shutil.which("java") or "/")
    servers = [mysql_digest(), postgres_digest(), newer_postgres_digest()]
    jars = [pinned.read_text() for pinned in (pinned_jars.ROCKSDB, pinned_jars.KAFKA)]
    parts = [packages_digest("dev"), *servers, zookeeper_digest(), *jars]
    return _digest([str(ROOT), "kept", java, str(os.stat(java).st_mtime_ns), *parts], [])


def extensions_digest(mode: str) -> str:
    """What the compiled modules were made from."""
    # A compiler that arrives later is worth another try.
    return _digest([str(ROOT), "extensions", mode, shutil.which("gcc") or shutil.which("cc") or ""], _compiled_from())


def _compiled_from() -> list[Path]:
    sources = hot_sources()
    return [ROOT / "setup.py", *sources, *(source.with_suffix(".pxd") for source in sources)]


def _stamped(name: str, digest: str) -> bool:
    stamp = VENV / f".prepared-{name}"
    return PYTHON.exists() and stamp.exists() and stamp.read_text().strip() == digest


def _stamp(name: str, digest: str) -> None:
    # A new file in place of the old one: a copy of the environment may share the old one by a hard link.
    draft = VENV / f".prepared-{name}.new"
    draft.write_text(digest + "\n")
    draft.replace(VENV / f".prepared-{name}")


def _run(step: str, command: Sequence[str | Path], **environment: str) -> str:
    """Run a command, quietly unless it fails; then show the end of what it printed, and stop."""
    result = quietly(command, **environment)
    if result.returncode:
        print("\n".join(result.stdout.splitlines()[-30:]), file=sys.stderr)
        stop(f"{step} failed (exit {result.returncode}): {' '.join(str(part) for part in command)}")
    return result.stdout


def make_environment() -> None:
    """Make ``.venv``, or make it again when its Python is gone or it was made for another folder."""
    if PYTHON.exists() and _environment_works():
        return
    say(f"making the virtual environment .venv with Python {sys.version.split()[0]} ({sys.executable})")
    # A pip of its own takes longer to make than everything that is installed with it.
    without = ["--without-pip"] if installs_elsewhere() else []
    _run("making the virtual environment", [sys.executable, "-m", "venv", "--clear", *without, VENV])


def _environment_works() -> bool:
    probe = f"import sys; sys.exit(not (sys.prefix == {str(VENV)!r} and sys.version_info >= {OLDEST}))"
    return (_has_pip() or installs_elsewhere()) and quietly([PYTHON, "-c", probe]).returncode == 0


def installs_elsewhere() -> bool:
    """Whether the Python that runs this has a pip that installs into ``.venv``."""
    try:
        version = re.match(r"(\d+)\.(\d+)", importlib.metadata.version("pip"))
    except importlib.metadata.PackageNotFoundError:
        return False
    return version is not None and (int(version[1]), int(version[2])) >= PIP_FOR_OTHERS


def _has_pip() -> bool:
    return any(VENV.glob("lib/python*/site-packages/pip"))


def pip() -> list[str | Path]:
    """The words that run a pip for ``.venv``: its own, or that of the Python that it was made from."""
    if _has_pip():
        return [PYTHON, "-m", "pip"]
    in_environment = sys.prefix != sys.base_prefix
    base = Path(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info)) if in_environment else sys.executable
    return [base, "-m", "pip", "--python", PYTHON]


def _install_locked(
    installer: Sequence[str | Path], names: Sequence[str], **environment: str
) -> subprocess.CompletedProcess[str]:
    """Install what the lock file has for ``names``, checked by hash, and nothing else."""
    lock = LOCK.read_text()
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as entries:
        entries.writelines(locked(name, lock) for name in names)
        entries.flush()
        return quietly([*installer, "--require-hashes", "--no-deps", "--requirement", entries.name], **environment)


def install_tools() -> None:
    """Have pip install the locked uv into ``.venv``, and what builds this checkout."""
    # Python compiles what it imports of these, which is less than all.
    outcome = _install_locked([*pip(), "--disable-pip-version-check", "install", "--no-compile"], TOOLS)
    if outcome.returncode:
        print("\n".join(outcome.stdout.splitlines()[-15:]), file=sys.stderr)
        stop(f"pip could not install {', '.join(TOOLS)}, which everything else needs; its message is above.\n"
             "  Which registry pip asks:  python3 -m pip config list\n"
             "  When pip reaches one, repeat the same make command.")  # fmt: skip


def registry_environment() -> dict[str, str]:
    """The environment in which uv asks the registry that pip asks."""
    python, *words = pip()
    # Which environment pip installs into makes no difference to its settings, and takes time.
    return uv_environment(quietly([python, *words[:2], "config", "list"]).stdout, os.environ)


def install_packages(group: str) -> None:
    """Install what the lock file has for ``group``, each file checked by its hash, and this checkout, editable."""
    extras, why, size = GROUPS[group]
    say(f"installing [{','.join(extras)}] (to fetch: at most {size}): {why}")
    started = time.monotonic()
    install_tools()
    environment = registry_environment()
    # Without build isolation a build uses the setuptools and Cython of .venv, and a rebuild needs no network.
    install: list[str | Path] = [UV, "pip", "install", "--quiet", "--python", PYTHON, "--no-build-isolation"]
    wanted: list[str | Path] = ["--require-hashes", "--constraint", LOCK, "--requirement", ROOT / "pyproject.toml"]
    wanted += [f"--extra={extra}" for extra in extras]
    _run("installing the packages", [*install, *wanted], **environment)
    environment["WORMHOLE_BUILD_EXT"] = "no"
    _run("installing this checkout", [*install, "--no-deps", "--editable", ROOT], **environment)
    say(f"installed [{','.join(extras)}] in {time.monotonic() - started:.0f} s")


def compiled_digest() -> str:
    """What the compiled forms depend on, wherever the checkout is: sources, how they are compiled, Python, machine."""
    probe = "import os, sys, sysconfig as s; print(sys.version, s.get_config_var('EXT_SUFFIX'), s.get_platform())"
    libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    python = _run("asking Python for its version", [PYTHON, "-c", probe])
    return _digest([python, libc, locked("cython", LOCK.read_text()), os.environ.get("CFLAGS", "")], _compiled_from())


def build_extensions(mode: str) -> None:
    """Put the compiled form of each hot module beside its source: from the cache, else by the compiler.

    Interpreted is the fallback unless ``mode`` is ``yes``; with ``cached`` the compiler is not waited for.
    """
    sources = hot_sources()
    for source in sources:
        compiled = extension_of(source)
        if compiled and mode != "no" and not stale(source):
            continue
        # A stale .so would hide the edited .py where compiling fails; without it the .py runs. setuptools keeps a
        # second one in build/, which it would copy here, with a new date, after a compile that failed.
        kept = (ROOT / "build").glob(f"lib*/{source.parent.relative_to(ROOT)}/{source.stem}.*.so")
        for file in [compiled, *kept] if compiled else list(kept):
            file.unlink()
    if mode == "no" or not sources:
        return
    cache, digest = compiled_cache.place(os.environ), compiled_digest()
    if compiled_cache.take(cache, digest, ROOT):
        say(f"took the compiled forms of {len(sources)} hot modules from {cache}")
    elif mode == "cached":
        say(
            "the hot modules run interpreted, which is enough here: `make build` compiles them, for other checkouts too"
        )
    elif compile_extensions(mode, sources):
        try:
            compiled_cache.keep(cache, digest, ROOT, [file for file in map(extension_of, sources) if file])
        except OSError as error:
            say(f"the compiled forms are not kept for other checkouts: {error}")


def compile_extensions(mode: str, sources: Sequence[Path]) -> bool:
    """Run the compiler, and stop where ``mode`` insists and it fails; returns whether every hot module is compiled."""
    say(f"compiling {len(sources)} hot modules (WORMHOLE_BUILD_EXT={mode or 'unset'})")
    started = time.monotonic()
    if not any(VENV.glob("lib/python*/site-packages/Cython")):
        _install_locked([UV, "pip", "install", "--quiet", "--python", PYTHON], ["cython"], **registry_environment())
    command = [str(PYTHON), "setup.py", "--quiet", "build_ext", "--inplace", f"--parallel={os.cpu_count() or 1}"]
    log = _run("compiling the hot modules", command, WORMHOLE_BUILD_EXT=mode)
    interpreted = [str(source.relative_to(ROOT)) for source in sources if extension_of(source) is None]
    if interpreted and mode == "yes":
        stop(f"WORMHOLE_BUILD_EXT=yes, but these hot modules did not compile: {', '.join(interpreted)}")
    if interpreted:
        (ROOT / "build").mkdir(exist_ok=True)
        (ROOT / "build" / "extensions.log").write_text(log)
        say(f"WARNING: no compiled form of {', '.join(interpreted)} (why: build/extensions.log);")
        say("         they run interpreted: everything works, decoding is several times slower")
    else:
        say(f"compiled in {time.monotonic() - started:.0f} s")
    return not interpreted


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Two make commands at once in one checkout: the second waits for the first."""
    with (ROOT / "pyproject.toml").open("rb") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def missing_servers(group: str) -> list[Callable[[], None]]:
    """What prepares the servers that ``group`` needs and that are not there yet."""
    steps = [("zookeeper", zookeeper_digest(), prepare_zookeeper)]
    if group == "dev":
        steps.append(("mysql", mysql_digest(), prepare_mysql))
    if group in {"dev", "demo-postgres"}:
        steps.append(("postgres", postgres_digest(), prepare_postgres))
    if group == "dev":
        steps.append(("newer-postgres", newer_postgres_digest(), prepare_newer_postgres))
        steps.append(("redis", redis_digest(), prepare_redis))
        steps.append(("pgbouncer", pooler_digest(), prepare_pooler))
    return [prepare_server for name, digest, prepare_server in steps if not _stamped(name, digest)]


def main(arguments: Sequence[str]) -> int:
    """Prepare the group named in ``arguments``; returns the exit status."""
    if sys.version_info < OLDEST:
        stop(f"Python {OLDEST[0]}.{OLDEST[1]} or newer is needed, this is {sys.version.split()[0]} "
             f"({sys.executable}). Name another one:  make PYTHON=/path/to/python3.11 ...")  # fmt: skip
    if len(arguments) != 1 or arguments[0] not in GROUPS:
        stop(f"usage: python3 -m scripts.prepare {'|'.join(GROUPS)}")
    group = arguments[0]
    mode = os.environ.get("WORMHOLE_BUILD_EXT", "")
    if mode not in {"", "yes", "no"}:
        stop(f"WORMHOLE_BUILD_EXT is {mode!r}; leave it unset, or say yes or no")
    if group != "dev" and not mode:
        mode = "cached"  # compiling takes longer than the demo
    with _alone():
        # `dev` holds everything that `demo` needs.
        packages_done = any(_stamped(name, packages_digest(name)) for name in {group, "dev"})
        enough = {mode, "", "yes"} if mode == "cached" else {mode}
        extensions_done = any(_stamped("extensions", extensions_digest(one)) for one in enough)
        servers = missing_servers(group)
        kept_done = group != "dev" or _stamped("kept", kept_digest())
        if (
            packages_done
            and not servers
            and extensions_done
            and kept_done
            and not any(stale(source) for source in hot_sources())
        ):
            return 0
        started = time.monotonic()
        if not packages_done:
            missing = missing_system_packages(group, compile_wanted=mode in {"", "yes"})
            with ThreadPoolExecutor(1) as beside:
                installed = beside.submit(install_system_packages, missing)
                if any(package.required for package in missing):
                    installed.result()
                make_environment()
                install_packages(group)
            installed.result()
            _stamp(group, packages_digest(group))
        # Servers are fetched and unpacked while the compiler runs: neither keeps both cores busy all the time.
        with ThreadPoolExecutor(1) as beside:
            compiled = beside.submit(build_extensions, mode)
            for prepare_server in servers:
                prepare_server()
        compiled.result()
        _stamp("extensions", extensions_digest(mode))
        if not kept_done:
            prepare_kept()
        say(f"ready after {time.monotonic() - started:.0f} s; the next run skips all this")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
