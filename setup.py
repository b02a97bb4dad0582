"""Compiles the hot modules; everything else stands in pyproject.toml.

WORMHOLE_BUILD_EXT: unset = compile if possible, yes = fail if that is not possible, no = leave them interpreted.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

ROOT = Path(__file__).parent
PACKAGES = ("wormhole", "caravan", "publisher", "subscriber_sdk", "monitor", "spark_replay", "wormholectl")
wanted = os.environ.get("WORMHOLE_BUILD_EXT", "")

# A .pxd beside a .py makes that module hot; there is no second list to forget.
pxds = sorted(pxd.relative_to(ROOT) for package in PACKAGES for pxd in (ROOT / package).rglob("*.pxd"))
hot_modules = [pxd.with_suffix(".py") for pxd in pxds if (ROOT / pxd).with_suffix(".py").exists()]

extensions: list[Extension] = []
if wanted != "no" and hot_modules:
    try:
        from Cython.Build import cythonize

        extensions = cythonize(
            [Extension(".".join(py.with_suffix("").parts), [str(py)]) for py in hot_modules],
            # Trap 3: generated C beside the source gets packaged, and outlives its source; it belongs in build/.
            # What .so hides which .py is checked at the start of every test run (tests/support/hot.py).
            build_dir="build/cython",
            # Trap 2: `n: int` in the .py against `Py_ssize_t n` in the .pxd is a compile error otherwise.
            compiler_directives={"language_level": 3, "annotation_typing": False},
        )
    except Exception:
        if wanted == "yes":
            raise
    # Trap 1: cythonize() returns new objects that forgot optional=True, so it is set afterwards.
    for extension in extensions:
        extension.optional = wanted != "yes"

setup(ext_modules=extensions)
