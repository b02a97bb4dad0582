"""The newcomer's clock: from an empty Debian to the first event in a handler, as `make dist` measures it at its end.

A Debian 12 with Python and without a compiler, of which nothing but Debian's own packages are there, is the root of
every command; a MariaDB with 50,000 rows, set up as most are, is written to meanwhile. docs/quickstart.md is followed
from its first line, with the wheel of `make dist`, until the handler prints a change. Then docs/sinks.md is followed in
an empty folder, until a PostgreSQL has a copy of the rows that was verified.
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
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from scripts import debian
from scripts.quickstart import PAGE, Block, Follower, QuickstartError, Store, read_page, store, written_to
from scripts.steps import ROOT, quietly
from tests.support.marked import MARK, marked
from tests.support.pages import Reader
from tests.support.postgres_server import PostgresServer
from tests.support.postgres_server import template as postgres_template

__all__ = ["Clock", "commands", "main", "mirror_page"]

_SUITE: Final = "bookworm"
_PYTHON: Final = "cp311"
_PACKAGES: Final = ("python3", "python3-venv")
_ROWS: Final = 50_000
_HOME: Final = "/root"
_SINKS: Final = ROOT / "docs" / "sinks.md"
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
    return len(block.code.replace("\\\n", "").splitlines()) if block.language == "sh" else 0


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


def _reader(root: Path, name: str, variables: Mapping[str, str]) -> Reader:
    """A newcomer in ``root``, in an empty folder ``name``. Nothing that pip fetched before is kept."""
    folder = f"{_HOME}/{name}"
    (root / folder.lstrip("/")).mkdir()
    path = f"{folder}/env/bin:/usr/local/bin:/usr/bin:/bin"  # the page activates it in each terminal
    fixed = {"PATH": path, "HOME": _HOME, "LANG": "C.UTF-8", "COLUMNS": "200", "PIP_NO_CACHE_DIR": "1"}
    system = ("unshare", "--mount", "sh", "-c", _ENTER, str(root), folder)
    return Reader(root / folder.lstrip("/"), None, {**fixed, **variables}, system)


@contextmanager
def _mariadb() -> Iterator[Store]:
    """It has the rows, and is written to."""
    with tempfile.TemporaryDirectory() as data, store("MariaDB", Path(data)) as written:
        written.sql(f"INSERT INTO shop.users (id, name) SELECT seq, 'Eve' FROM shop.seq_11_to_{_ROWS}")
        with written_to(written):
            yield written


def mirror_page() -> str:
    """What docs/sinks.md has for a first copy."""
    (text,) = re.findall(r"^## Begin\n.*?(?=^## )", _SINKS.read_text(), re.MULTILINE | re.DOTALL)
    return str(text)


def _blocks(text: str, wheel: Path) -> list[Block]:
    """What a page has for MariaDB."""
    steps = read_page(text.replace("'wormhole-pubsub[", f"'{_HOME}/{wheel.name}["))
    return [block for step in steps for block in step.blocks if "MariaDB" in block.only]


def _follow(root: Path, wheel: Path, variables: Mapping[str, str]) -> list[Clock]:
    """Follow the quickstart in ``root``; what was reached, in order."""
    reader = _reader(root, "work", variables)
    reached: list[Clock] = []
    typed = 0
    with ExitStack() as stack:
        written = stack.enter_context(_mariadb())
        terminal = stack.enter_context(ExitStack())
        follower = Follower(reader, written, terminal)
        began = time.monotonic()
        for block in _blocks(PAGE.read_text(), wheel):
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


def _mirror(root: Path, wheel: Path, variables: Mapping[str, str]) -> Clock:
    """Follow the page of sinks in ``root``, in an empty folder."""
    reader = _reader(root, "mirror", variables)
    with _mariadb() as written, PostgresServer(template=postgres_template()) as target:
        target.sql(f"DROP ROLE {target.user}")  # the page makes its own
        account = next(block for block in _blocks(PAGE.read_text(), wheel) if block.language == "sql")
        blocks = _blocks(mirror_page(), wheel)
        began = time.monotonic()
        written.sql(account.code)
        for block in blocks:
            if block.language == "sql":
                target.sql(*filter(None, map(str.strip, block.code.split(";"))))
            else:
                reader.shell(block.code.replace(*written.named).replace("dwh:5432", f"{target.host}:{target.port}"))
        clock = Clock("a copy that verifies", time.monotonic() - began, sum(map(commands, [account, *blocks])))
        reader.shell("wormholectl down -f shop.toml")
    return clock


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
            shutil.copy(wheels[-1], Path(folder, _HOME.lstrip("/")))
            variables = {**_registry(), MARK: mark}
            reached = [*_follow(Path(folder), wheels[-1], variables), _mirror(Path(folder), wheels[-1], variables)]
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
