"""What an installation that compiles says to the person who waits for it, although pip hides what a build prints."""

from __future__ import annotations

import contextlib
import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.prepare import ROOT


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A checkout with one small hot module."""
    shutil.copy(ROOT / "setup.py", tmp_path)
    (tmp_path / "wormhole").mkdir()
    (tmp_path / "wormhole" / "hot.py").write_text("def one():\n    return 1\n")
    (tmp_path / "wormhole" / "hot.pxd").write_text("cpdef int one()\n")
    return tmp_path


def shown(tree: Path, **environment: str) -> tuple[str, int]:
    """What a terminal shows while setup.py runs below it with both outputs hidden, and the exit status."""
    terminal, ours = pty.openpty()
    # As pip runs it: its outputs are not the terminal, which belongs to the session all the same.
    belong = "import os, sys; os.open(os.ttyname(0), os.O_RDWR); "
    run = "os.execv(sys.executable, [sys.executable, 'setup.py', 'build_ext', '--inplace'])"
    process = subprocess.Popen(
        [sys.executable, "-c", belong + run],
        cwd=tree,
        env={**os.environ, "WORMHOLE_BUILD_EXT": "", **environment},  # coverage runs the suite with "no"
        stdin=ours,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(ours)
    said = b""
    with contextlib.suppress(OSError):  # the end of a terminal whose last user is gone
        while data := os.read(terminal, 1 << 12):
            said += data
    os.close(terminal)
    return said.decode(), process.wait()


@pytest.mark.skipif(not (shutil.which("cc") or shutil.which("gcc")), reason="there is no C compiler")
def test_it_says_that_it_compiles_with_what_and_how_not_to(tree: Path) -> None:
    said, status = shown(tree, CFLAGS="-O0")
    assert status == 0
    assert "compiling 1 module(s) with Cython and the C compiler: about a minute" in said
    assert "With WORMHOLE_BUILD_EXT=no in the environment nothing is compiled" in said
    assert "compiled in" in said
    assert list(tree.glob("wormhole/hot.*.so"))


def test_what_does_not_compile_is_named_with_what_that_means(tree: Path) -> None:
    said, status = shown(tree, CC="/bin/false")
    assert status == 0
    assert "with Cython and /bin/false" in said
    assert "WARNING: wormhole.hot did not compile (`pip install -v` shows why): everything works without" in said


def test_nothing_is_compiled_where_nobody_wants_it(tree: Path) -> None:
    assert shown(tree, WORMHOLE_BUILD_EXT="no") == ("", 0)
    assert not list(tree.glob("wormhole/*.so"))
