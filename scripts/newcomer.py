"""The newcomer's clock: from an empty Debian to the first event in a handler, as `make dist` measures it at its end.

A Debian 12 with Python and without a compiler, of which nothing but Debian's own packages are there, is the root of
every command; a MariaDB with 50,000 rows, set up as most are, is written to meanwhile. docs/quickstart.md is followed
from its first line, with the wheel of `make dist`, until the handler prints a change.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final, NamedTuple

from scripts import debian
from scripts.quickstart import PAGE, Block, Follower, QuickstartError, read_page, store, written_to
from scripts.steps import ROOT, quietly
from tests.support.marked import MARK, marked
from tests.support.pages import Reader

__all__ = ["Clock", "commands", "main"]

_SUITE: Final = "bookworm"
_PYTHON: Final = "cp311"
_PACKAGES: Final = ("python3", "python3-venv")
_ROWS: Final = 50_000
_FOLDER: Final = "/root/work"
# Its own root, with this machine's devices and processes. Each mount ends with the command that needs it.
_ENTER: Final = 'mount --rbind /dev "$0/dev" && mount --rbind /proc "$0/proc" && exec /usr/sbin/chroot "$0" env -C "$@"'


class Clock(NamedTuple):
    """What was reached, and with how much. ``commands``: lines of a shell and statements of SQL."""

    reached: str
    seconds: float
    commands: int


def commands(block: Block) -> int:
    """How many commands a reader types for it."""
    if block.language == "sql":
        return len([one for one in block.code.split(";") if one.strip()])
    return len(block.code.splitlines()) if block.language == "sh" else 0


def _others() -> list[str]:
    """The table of others, from the page that has it."""
    page = (ROOT / "docs" / "compare.md").read_text()
    return re.findall(r"^\|.*\|$", page.rpartition("counted and not run:")[2], re.MULTILINE)


def _registry() -> dict[str, str]:
    """How this machine's pip reaches its registry, as an environment."""
    told = quietly([sys.executable, "-m", "pip", "config", "list"]).stdout
    settings = re.findall(r"^(?:global|install|:env:)\.([a-z-]+)='(.*)'$", told, re.MULTILINE)
    proxies = {name: value for name, value in os.environ.items() if name.lower().endswith("_proxy")}
    return proxies | {f"PIP_{name.upper().replace('-', '_')}": value for name, value in settings}


def _debian(root: Path) -> None:
    """Unpack it; names and certificates are this machine's."""
    mirror = debian.debian_mirror()
    if mirror is None:
        raise QuickstartError("apt knows no Debian mirror")
    outcome = debian.unpack_debian(root, _SUITE, _PACKAGES, mirror)
    if outcome.returncode:
        raise QuickstartError(f"Debian could not be unpacked: {outcome.stdout[-2000:]}")
    for name in ("dev", "proc"):
        if (root / name).is_symlink():  # to itself: debootstrap makes such where it may not mount
            (root / name).unlink()
        (root / name).mkdir(exist_ok=True)
    for file in ("/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"):
        inside = root / file.lstrip("/")
        inside.parent.mkdir(parents=True, exist_ok=True)
        inside.unlink(missing_ok=True)
        shutil.copy(file, inside)
    if compilers := [name for name in ("gcc", "cc", "clang") if (root / "usr" / "bin" / name).exists()]:
        raise QuickstartError(f"this Debian has a compiler: {', '.join(compilers)}")


def _follow(root: Path, wheel: Path, variables: Mapping[str, str]) -> list[Clock]:
    """Follow the page in ``root``; what was reached, in order."""
    folder = root / _FOLDER.lstrip("/")
    folder.mkdir(parents=True)
    shutil.copy(wheel, root / "root")
    path = f"{_FOLDER}/env/bin:/usr/local/bin:/usr/bin:/bin"  # the page activates it in each terminal
    home = {"PATH": path, "HOME": "/root", "LANG": "C.UTF-8", "COLUMNS": "200", **variables}
    reader = Reader(folder, None, home, ("unshare", "--mount", "sh", "-c", _ENTER, str(root), _FOLDER))
    text = PAGE.read_text().replace("'wormhole-pubsub[", f"'/root/{wheel.name}[")
    reached: list[Clock] = []
    typed = 0
    with ExitStack() as stack, tempfile.TemporaryDirectory() as data:
        written = stack.enter_context(store("MariaDB", Path(data)))
        written.sql(f"INSERT INTO shop.users (id, name) SELECT seq, 'Eve' FROM shop.seq_11_to_{_ROWS}")
        stack.enter_context(written_to(written))
        terminal = stack.enter_context(ExitStack())
        follower = Follower(reader, written, terminal)
        began = time.monotonic()
        blocks = [block for step in read_page(text) for block in step.blocks if "MariaDB" in block.only]
        for block in blocks:
            follower.follow(block)
            typed += commands(block)
            if "pip install" in block.code:
                reached.append(Clock("installed", time.monotonic() - began, typed))
            elif "wormholectl tail" in block.code:
                reached.append(Clock("three changes in `tail`", time.monotonic() - began, typed))
            elif block.second and block.language == "text":
                reached.append(Clock("a change in the handler", time.monotonic() - began, typed))
                break
        terminal.close()
        reader.shell("wormholectl down -f shop.toml")
    return reached


def main() -> int:
    """Run the clock and print it; returns 0 when the handler got its change, or when only root could run it."""
    if reason := debian.without_chroot():
        print(f"newcomer: the clock does not run here: {reason}")
        return 0
    wheels = sorted((ROOT / "dist").glob(f"*-{_PYTHON}-*.whl"))
    if not wheels:
        print(f"newcomer: dist/ has no wheel for {_PYTHON}: make dist", file=sys.stderr)
        return 1
    mark = uuid.uuid4().hex
    with tempfile.TemporaryDirectory(prefix="wormhole-newcomer-") as folder:
        try:
            _debian(Path(folder))
            reached = _follow(Path(folder), wheels[-1], {**_registry(), MARK: mark})
        except (QuickstartError, AssertionError) as error:
            print(f"newcomer: {error}", file=sys.stderr)
            return 1
        finally:
            for pid in marked(mark):  # what a step that failed had started in the background
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
    print(f"newcomer: an empty Debian 12, a MariaDB of {_ROWS:,} rows, the wheel of dist/")
    for clock in reached:
        print(f"newcomer: {clock.reached:<24} {clock.seconds:6.1f} s  {clock.commands:2} commands and statements")
    print("newcomer: docs/compare.md counts what the documents of others ask for:", *_others(), sep="\n  ")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
