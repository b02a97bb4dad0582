"""`make dist`: sdist and wheel into ``dist/``, and the wheel tried as an application would install it.

The trial environment first gets the wheel without extras: the SDK imports with the base packages, and `wormholectl`
names its extra.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from scripts.prepare import LOCK, PACKAGES, ROOT, UV, registry_environment

__all__ = ["main", "missing_from"]

DIST = ROOT / "dist"
# Each name a user imports from the base installation; the publisher's side must not come with it.
TRIAL = """
import importlib.metadata, sys, subscriber_sdk, wormhole
ours = {"pip", "setuptools", "wormhole-pubsub"}
installed = {found.name.lower() for found in importlib.metadata.distributions()} - ours
assert len(installed) <= 12, f"the base installation is {len(installed)} packages: {sorted(installed)}"
heavy = {"google_crc32c", "zstandard", "prometheus_client", "aiohttp", "rocksdict", "pyspark"} & set(sys.modules)
assert not heavy, f"the SDK pulled in {heavy}"
assert "site-packages" in wormhole.__file__, wormhole.__file__
assert subscriber_sdk.__all__
"""


def missing_from(names: set[str]) -> list[str]:
    """Which files of the packages are not among ``names`` (paths inside an archive): code, types and markers."""
    wanted = [
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for pattern in ("*.py", "*.pyi", "*.pxd", "py.typed")
        for path in sorted((ROOT / package).rglob(pattern))
    ]
    return [path for path in wanted if path not in names]


def _run(*command: str | Path, **environment: str) -> None:
    # Nothing of the checkout may help: neither its folder nor its environment.
    whole = {**os.environ, **environment}
    clean = {name: value for name, value in whole.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    words = [str(part) for part in command]
    result = subprocess.run(words, cwd=DIST, env=clean, check=False, capture_output=True, text=True)
    if result.returncode:
        print(*(result.stdout + result.stderr).splitlines()[-30:], sep="\n", file=sys.stderr)
        raise SystemExit(f"dist: failed: {' '.join(words)}")


def main() -> int:
    """Build, compare the contents with the tree, and try the wheel; the first step that fails ends it."""
    shutil.rmtree(DIST, ignore_errors=True)
    DIST.mkdir()
    # No isolation: the pinned setuptools and Cython of .venv build it.
    try:
        _run(sys.executable, "-m", "build", "--no-isolation", "--outdir", DIST, ROOT)
    finally:  # pytest would take the whole checkout for a plugin, and rewrite the assertions of every module
        shutil.rmtree(ROOT / "wormhole_pubsub.egg-info", ignore_errors=True)
    wheel, sdist = next(DIST.glob("*.whl")), next(DIST.glob("*.tar.gz"))
    with zipfile.ZipFile(wheel) as archive:
        in_wheel = set(archive.namelist())
    with tarfile.open(sdist) as tar:
        in_sdist = {name.partition("/")[2] for name in tar.getnames()}
    for archive_name, names in ((wheel.name, in_wheel), (sdist.name, in_sdist)):
        if missing := missing_from(names):
            print(f"dist: {archive_name} lacks {', '.join(missing)}", file=sys.stderr)
            return 1
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder) / "bin" / "python"
        _run(sys.executable, "-m", "venv", folder)
        install = (UV, "pip", "install", "--quiet", "--python", python, "--constraint", LOCK)
        _run(*install, wheel, **registry_environment())
        _run(python, "-I", "-c", TRIAL)
        command = Path(folder) / "bin" / "wormholectl"
        refused = subprocess.run([command, "--help"], check=False, capture_output=True, text=True)
        if refused.returncode != 1 or "wormhole-pubsub[cli]" not in refused.stderr or "Traceback" in refused.stderr:
            raise SystemExit(f"dist: without the command line's packages, wormholectl says: {refused.stderr}")
        _run(*install, f"{wheel}[cli]", **registry_environment())
        _run(command, "--help", NO_COLOR="1")
    print(f"dist: {wheel.name} and {sdist.name}: complete; the wheel installs without extras and imports")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
