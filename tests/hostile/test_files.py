"""Another user of the host: reads nothing of what processes and commands write, and leads none of them to a file
that is not theirs."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.prepare import ROOT
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.processes import Process
from wormhole.coordination.host_files import HostFiles
from wormhole.coordination.port import HistoryEntry, HostRequest
from wormhole.host.ready_file import ready_path
from wormhole.model.errors import ConfigError

_NOBODY = 65534
_TOML = """
version = 1
[publisher]
state_dir = "{state}"
memory_budget = "256MiB"
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{store}"
[applications.cache]
dataset = "shop"
start = "earliest"
subscribers = {{ c1 = "127.0.0.1:9" }}
"""
_READ = """
for path; do
    if [ -d "$path" ]; then ls "$path" >/dev/null 2>&1 && echo "$path"
    else head -c 1 "$path" >/dev/null 2>&1 && echo "$path"; fi
done; true
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that others reach, as ``/var/lib`` is.

    Not ``tmp_path``: every pytest that starts meanwhile closes the folder above it to others.
    """
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        yield Path(folder)


def _readable(*paths: str) -> list[str]:
    """Which of them another user reads, or lists."""
    done = subprocess.run(
        ["/bin/sh", "-c", _READ, "sh", *paths],
        user=_NOBODY,
        group=_NOBODY,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def _about(folder: Path) -> dict[str, tuple[int, int, int]]:
    """Mode, owner and group of each file."""
    found = {one.relative_to(folder): one.stat() for one in (folder, *folder.rglob("*"))}
    return {str(name): (state.st_mode, state.st_uid, state.st_gid) for name, state in found.items()}


def test_no_other_user_reads_what_a_publisher_and_commands_write(shared: Path) -> None:
    before = os.umask(0)
    store = RocksWriter(shared / "store")
    state = shared / "lib" / "state"
    file = shared / "shop.toml"
    publisher = Process(
        "publisher", ["-m", "wormholectl", "publisher", "run", "-c", str(file), "--log", "shop/main/db1"], shared
    )
    try:
        store.put(b"k", b"secret")
        store.flush()
        store.put(b"k2", b"secret")
        file.write_text(_TOML.format(state=state, store=store.path))
        database = _about(Path(store.path))
        publisher.start()
        ready = ready_path(state, "shop", "main", "db1")
        while not ready.exists():
            assert publisher.alive, publisher.output.read_text()
            time.sleep(0.05)
        command = ["-m", "wormholectl", "flows", "pause", "cache/db1", "--yes", "-c", str(file)]
        subprocess.run([sys.executable, *command], cwd=ROOT, check=True, capture_output=True)
        pins = [one for one in shared.rglob("*") if one.is_file() and one.stat().st_nlink > 1]
        assert len({one.parent for one in pins}) > 1, "files of the database are pinned"
        written = [one for one in (state, *state.rglob("*"), *pins) if Path(store.path) not in one.parents]
        names = {one.name for one in written}
        assert {"admin.token", "markers.sqlite", "publisher.json", "history.jsonl"} <= names
        assert _readable(str(shared / "shop.toml"), *map(str, written)) == [str(shared / "shop.toml")]
        open_ones = [one for one in written if one.stat().st_mode & 0o077 and one.name != "publisher.json"]
        assert not [one for one in open_ones if one not in pins]
        after = _about(Path(store.path))
        assert {name: after[name] for name in database if name in after} == database
    finally:
        publisher.kill()
        store.exit()
        os.umask(before)


@pytest.mark.parametrize("name", ["history.jsonl", "history.lock", "hosts"])
def test_a_link_in_the_publishers_folder_leads_root_nowhere(shared: Path, name: str) -> None:
    """The publisher's user owns the folder; an operator who is root writes there."""
    state, victim = shared / "state", shared / "victim"
    state.mkdir()
    os.chown(state, _NOBODY, _NOBODY)
    if name == "hosts":
        victim.mkdir()
    else:
        victim.write_text("root's own\n")
    (state / name).symlink_to(victim)
    os.lchown(state / name, _NOBODY, _NOBODY)
    files = HostFiles(state)
    with pytest.raises(ConfigError, match=str(state / name.partition(".")[0])):
        files.record(HistoryEntry(1.0, "root", "drain", "h"))
        files.set_request("h", HostRequest(drained=True))
    assert list(victim.iterdir()) == [] if victim.is_dir() else victim.read_text() == "root's own\n"


def test_what_root_writes_can_be_read_by_the_publishers_user_alone(shared: Path) -> None:
    state = shared / "state"
    state.mkdir(mode=0o700)
    os.chown(state, _NOBODY, _NOBODY)
    files = HostFiles(state)
    files.record(HistoryEntry(1.0, "root", "drain", "h"))
    files.set_request("h", HostRequest(drained=True))
    written = [str(one) for one in state.rglob("*")]
    assert len(written) == 4
    assert sorted(_readable(*written)) == sorted(written)
    assert not [one for one in written if os.stat(one).st_mode & 0o077]
