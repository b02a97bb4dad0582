"""Compiles the hot modules; everything else stands in pyproject.toml.

WORMHOLE_BUILD_EXT: unset = compile if possible, yes = fail if that is not possible, no = leave them interpreted.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).parent
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
wanted = os.environ.get("WORMHOLE_BUILD_EXT", "")
INTERPRETED = "everything works without them; publishers decode and subscribers read values several times slower"


def say(text: str) -> None:
    """Tell the user who waits. pip hides what a build prints, unless it fails or ``-v`` is given, but no terminal."""
    line = f"wormhole-pubsub: {text}"
    sys.stderr.write(f"{line}\n")
    if not os.isatty(2):
        with contextlib.suppress(OSError), Path("/dev/tty").open("w") as terminal:
            terminal.write(f"\n{line}\n")


class Compile(build_ext):
    """Compiles on all cores, and prints how long that takes, with what, and how to do without."""

    def finalize_options(self) -> None:
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()

    def run(self) -> None:
        if not self.extensions or not self.distribution.verbose:  # `make build` is quiet: it has a message of its own
            super().run()
            return
        say(
            f"compiling {len(self.extensions)} module(s) with Cython and {os.environ.get('CC', 'the C compiler')}: "
            "about a minute on two idle cores. "
            f"With WORMHOLE_BUILD_EXT=no in the environment nothing is compiled: {INTERPRETED}"
        )
        started = time.monotonic()
        super().run()
        missing = [one.name for one in self.extensions if not Path(self.get_ext_fullpath(one.name)).exists()]
        if missing:
            say(f"WARNING: {', '.join(missing)} did not compile (`pip install -v` shows why): {INTERPRETED}")
        else:
            say(f"compiled in {time.monotonic() - started:.0f} s")


# A .pxd beside a .py makes that module hot; there is no second list to forget.
pxds = sorted(pxd.relative_to(ROOT) for package in PACKAGES for pxd in (ROOT / package).rglob("*.pxd"))
hot_modules = [pxd.with_suffix(".py") for pxd in pxds if (ROOT / pxd).with_suffix(".py").exists()]

extensions: list[Extension] = []
if wanted != "no" and hot_modules:
    try:
        from Cython.Build import cythonize

        extensions = cythonize(
            # -g0: debugging information would be most of a wheel.
            [
                Extension(".".join(py.with_suffix("").parts), [str(py)], extra_compile_args=["-g0"])
                for py in hot_modules
            ],
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

setup(ext_modules=extensions, cmdclass={"build_ext": Compile})
