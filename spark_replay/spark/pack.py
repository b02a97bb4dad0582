"""The environment of this process as an archive that ``spark-submit --archives`` unpacks beside each executor.

It contains the interpreter with its standard library, and the installed packages that wormhole-pubsub and its extras
require, with compiled modules. PySpark is packed without its jars, because a cluster has its own. The folder works in
any place on the same system and processor. The C library and a few others are the host's.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, Final

from wormhole.host.compiled import compiled_modules, hot_modules
from wormhole.model.errors import UsageError

__all__ = ["NAME", "Packed", "pack", "required"]

NAME: Final = "wormhole-pubsub"
_SUFFIXES: Final = (".tar.gz", ".tgz")
_NOT_FOR_EXECUTORS: Final = {"delta", "dev", "iceberg", "monitor", "release", "testing"}
_NEEDED: Final = "spark"
_LEFT_OUT: Final = {
    "pyspark": {"bin", "data", "examples", "jars", "licenses", "sbin", "testing"},
    "pyarrow": {"include", "includes", "tests"},
    "pandas": {"tests"},
    "": {"__pycache__"},
}
"""Folders of packages that no executor needs. The last entry is for all packages."""
_NO_LIBRARY: Final = {
    "__pycache__", "dist-packages", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test",
    "tkinter", "turtledemo",
}  # fmt: skip
_LEVEL: Final = 3  # gzip's level: 6 takes twice as long for two percent
_PROBE: Final = """
import compileall, json, os, py_compile, re, site, sys
root = os.path.dirname(os.path.dirname(os.path.abspath(sys.executable)))
if sys.argv[1] == "where":
    said = {"site": os.path.relpath(site.getsitepackages()[-1], root)}
else:
    import ctypes, hashlib, ssl, pandas, pyarrow.parquet, spark_replay.replay.jobs
    from wormhole.host.compiled import compiled_modules
    files = {getattr(one, "__file__", None) or root for one in list(sys.modules.values())}
    outside = sorted(file for file in files if file.startswith("/") and not file.startswith(root))
    compileall.compile_dir(root, quiet=2, stripdir=root, workers=os.cpu_count(),
                           invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)
    said = {"outside": outside, "compiled": list(compiled_modules())}
mapped = {line.split(None, 5)[-1].strip() for line in open("/proc/self/maps")}
said["mapped"] = sorted(one for one in mapped if re.fullmatch(r"/.*\\.so[.\\d]*", one))
print(json.dumps(said))
"""
_C_LIBRARY: Final = re.compile(r"(ld-linux\S*|lib(c|m|dl|pthread|rt|util|resolv))\.so[.\d]*|ld-musl\S*")


@dataclass(frozen=True, slots=True)
class Packed:
    """``size``: bytes of the archive. ``packages``: names and versions. ``c_library`` and ``libraries``: libraries of
    the system that executors must have.
    """

    size: int
    python: str
    packages: dict[str, str]
    c_library: str
    libraries: tuple[str, ...]


def pack(to: Path) -> Packed:
    """Write the archive ``to``. Blocks for about a minute.

    Raises :class:`~wormhole.model.errors.UsageError` for an installation that cannot be packed: its modules are not
    compiled, it lacks a package or has an editable one of others, or its interpreter works only in its present place.
    """
    if not to.name.endswith(_SUFFIXES):
        raise UsageError(f"{to} does not end in .tar.gz", hint="Spark unpacks by the name: name a file that does")
    _check_compiled()
    packages = required()
    try:
        with tempfile.TemporaryDirectory(prefix=f".{to.name}.", dir=to.absolute().parent) as draft:
            root = Path(draft, "env")
            libraries = _assemble(root, packages)
            file = Path(draft, "packed")
            _archive(root, file)
            size = file.stat().st_size
            file.replace(to)
    except OSError as error:
        raise UsageError(
            f"{error.filename or to}: {error.strerror or error}", hint="free space, or name another file with --to"
        ) from error
    versions = {one.metadata["Name"]: one.version for one in packages}
    return Packed(size, sys.version.split()[0], versions, os.confstr("CS_GNU_LIBC_VERSION") or "libc", libraries)


def _check_compiled() -> None:
    if missing := sorted(set(hot_modules()) - set(compiled_modules())):
        raise UsageError(
            f"{len(missing)} of {len(hot_modules())} hot modules are not compiled, such as {missing[0]}: executors "
            "would decode several times slower",
            hint="install the wheel for this platform, or a C compiler and then: "
            f"pip install --force-reinstall --no-cache-dir {NAME}",
        )


# --- which packages ----------------------------------------------------------------------------------------------


def required(name: str = NAME) -> list[Distribution]:
    """The distribution ``name`` and all that it requires with its installed extras, by name.

    Raises :class:`~wormhole.model.errors.UsageError` if one is missing.
    """
    from packaging.utils import canonicalize_name

    extras = set(_installed(name).metadata.get_all("Provides-Extra", ())) - _NOT_FOR_EXECUTORS
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    waiting = [(name, extra, True) for extra in ("", *sorted(extras))]
    while waiting:
        one, extra, must = waiting.pop()
        if (canonicalize_name(one), extra) in seen:
            continue
        try:
            has = _installed(one)
        except UsageError:
            if must:
                raise
            continue  # its extra is not installed
        seen.add((canonicalize_name(one), extra))
        found[canonicalize_name(one)] = has
        optional = extra not in {"", _NEEDED} and canonicalize_name(one) == canonicalize_name(name)
        waiting += [(needs, more, not optional) for needs, more in _requirements(has, extra)]
    return [found[one] for one in sorted(found)]


def _requirements(has: Distribution, extra: str) -> Iterator[tuple[str, str]]:
    """The distributions that one extra of a distribution requires on this machine, each with its requested extra."""
    from packaging.requirements import Requirement

    for text in has.requires or ():
        wants = Requirement(text)
        if wants.marker is None and extra:
            continue
        if wants.marker is None or wants.marker.evaluate({"extra": extra}):
            for more in ("", *sorted(wants.extras)):
                yield wants.name, more


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError as error:
        raise UsageError(f"{name} is not installed", hint=f"pip install '{NAME}[{_NEEDED}]'") from error


# --- the folder --------------------------------------------------------------------------------------------------


def _assemble(root: Path, packages: Sequence[Distribution]) -> tuple[str, ...]:
    """Make the folder ``root`` and run its interpreter. Returns the libraries of the system that it loaded."""
    _copy_python(root)
    mapped = _run(root, "where")["mapped"]
    if library := next((Path(one) for one in mapped if "libpython" in one and not one.startswith(str(root))), None):
        _carry(root, library)
    target = root / _run(root, "where")["site"]
    for one in packages:
        _copy_package(one, target)
    said = _run(root, "all")
    if said["outside"]:
        raise UsageError(
            f"the packed interpreter takes modules from outside of it, such as {said['outside'][0]}",
            hint="pack with another Python, such as your distribution's or the one that uv installs",
        )
    if missing := sorted(set(compiled_modules()) - set(said["compiled"])):
        raise UsageError(f"{missing[0]} is compiled here and not in the archive", hint=f"install {NAME} again with pip")
    names = {Path(one).name for one in said["mapped"] if not one.startswith(str(root))}
    return tuple(sorted(name for name in names if not _C_LIBRARY.fullmatch(name)))


def _copy_python(root: Path) -> None:
    base = Path(os.path.realpath(sys.executable))
    (root / "bin").mkdir(parents=True)
    shutil.copy2(base, root / "bin" / "python")
    library = Path(sysconfig.get_path("stdlib"))
    shutil.copytree(
        library,
        root / "lib" / library.name,
        ignore=lambda folder, names: [
            name for name in names if name in _NO_LIBRARY or (Path(folder) == library and name.startswith("config-"))
        ],
    )


def _carry(root: Path, library: Path) -> None:
    """Copy the interpreter's own library beside it, and make the interpreter load this copy.

    For that the library's path in the program is overwritten with a relative one, padded to the same length.
    """
    shutil.copy2(library, root / "lib" / library.name)
    program = root / "bin" / "python"
    content = program.read_bytes()
    for old in {str(library.parent), os.path.realpath(library.parent), sysconfig.get_config_var("LIBDIR") or ""}:
        new = b"$ORIGIN/../lib"
        place = old.encode()
        if old and len(place) >= len(new) and b"\0" + place + b"\0" in content:
            content = content.replace(b"\0" + place + b"\0", b"\0" + new.ljust(len(place) + 1, b"\0"))
    program.write_bytes(content)
    if outside := [one for one in _run(root, "where")["mapped"] if "libpython" in one and str(root) not in one]:
        raise UsageError(
            f"this Python is found only together with {outside[0]}",
            hint="pack with another Python, such as your distribution's or the one that uv installs",
        )


def _copy_package(one: Distribution, target: Path) -> None:
    name = one.metadata["Name"]
    about = json.loads(one.read_text("direct_url.json") or "{}")
    editable = about.get("dir_info", {}).get("editable", False)
    if editable and name != NAME:
        raise UsageError(
            f"{name} is installed as editable: its files are not where packages are", hint=f"pip install {name}"
        )
    if one.files is None:
        raise UsageError(
            f"nothing lists the files of {name}", hint="install wormhole-pubsub[spark] with pip into an environment"
        )
    for file in one.files:
        if ".." in file.parts or file.suffix == ".pth" or _left_out(file):
            continue  # a program in `bin`, or a file of an editable installation
        source = Path(str(one.locate_file(file)))
        if source.is_file():
            _copy(source, target / file)
    if editable:  # a checkout: pack the content of the imported folders
        for package in (one.read_text("top_level.txt") or "").split():
            spec = find_spec(package)
            for folder in map(Path, (spec and spec.submodule_search_locations) or ()):
                for source in sorted(folder.rglob("*")):
                    inside = PurePosixPath(package, *source.relative_to(folder).parts)
                    if source.is_file() and not _left_out(inside):
                        _copy(source, target / inside)


def _left_out(file: PurePosixPath) -> bool:
    folders = file.parts[:-1]
    own = _LEFT_OUT.get(folders[0], set()) if folders else set()
    return bool(_LEFT_OUT[""] & set(folders)) or bool(own & set(folders[1:]))


def _copy(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy2(source, target)


def _run(root: Path, what: str) -> dict[str, Any]:
    """Run the packed interpreter as on a host without other packages. Returns what it reports of itself."""
    done = subprocess.run(
        [str(root / "bin" / "python"), "-I", "-c", _PROBE, what],
        cwd=root,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
        raise UsageError(
            f"the packed interpreter does not run the job: {lines[-1]}",
            hint="pack with another Python, such as your distribution's or the one that uv installs",
        )
    said: dict[str, Any] = json.loads(done.stdout)
    return said


def _archive(root: Path, file: Path) -> None:
    """Pack the folder. Order and times in the archive do not depend on when and where it was made."""
    with (
        file.open("wb") as raw,
        gzip.GzipFile(filename="", mode="wb", compresslevel=_LEVEL, fileobj=raw, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w|", format=tarfile.GNU_FORMAT) as archive,
    ):
        for path in sorted(root.rglob("*")):
            entry = archive.gettarinfo(path, str(path.relative_to(root)))
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            entry.mode = 0o755 if path.is_dir() or entry.mode & 0o100 else 0o644
            if path.is_file():
                with path.open("rb") as content:
                    archive.addfile(entry, content)
            else:
                archive.addfile(entry)
