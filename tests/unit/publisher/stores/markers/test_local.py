"""What only a file can do: be killed, be full, be locked, be damaged."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from publisher.stores.markers import LocalMarkerStore
from scripts.prepare import ROOT
from tests.support.eventually import PATIENCE_S
from tests.support.markers import CACHE, marker, opened
from wormhole.model.errors import MarkerStoreError
from wormhole.ports.marker_store import FlowControl, StoredFlow
from wormhole.wire.markers import marker_to_bytes


def python(code: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


WRITER = """
import sys, itertools
from pathlib import Path
from publisher.stores.markers import LocalMarkerStore
from tests.support.markers import CACHE, marker, write
store = LocalMarkerStore(Path(sys.argv[1]))
store.open()
epoch = store.register(CACHE, marker(0), "latest").epoch
offset = store.load()[CACHE].marker.order.offset
while True:
    offset += 1
    if offset % 10 == 0:
        epoch = store.raise_epoch(CACHE)
    assert store.store([write(offset, epoch=epoch)]) == ()
    print(offset, epoch, flush=True)
"""


def test_survives_kill_9_between_any_two_writes(tmp_path: Path) -> None:
    last = (0, 0)
    for lines in (1, 13, 40):
        writer = python(WRITER, tmp_path)
        assert writer.stdout is not None
        told = [tuple(map(int, writer.stdout.readline().split())) for _ in range(lines)]
        writer.send_signal(signal.SIGKILL)
        told += [tuple(map(int, line.split())) for line in writer.stdout.read().splitlines() if line.count(" ") == 1]
        writer.wait()
        writer.stdout.close()
        with opened(LocalMarkerStore(tmp_path)) as store:
            found = store.load()[CACHE]
        place = (found.marker.order.offset, found.epoch)
        assert place >= told[-1] > last, "what was told as stored is there"
        assert place[0] <= told[-1][0] + 1, "and at most the write under way beyond it"
        last = place


def test_refuses_a_second_owner_by_name(tmp_path: Path) -> None:
    holder = python(WRITER, tmp_path)
    assert holder.stdout is not None
    try:
        holder.stdout.readline()
        with pytest.raises(MarkerStoreError, match=f"in use by process {holder.pid}") as caught:
            LocalMarkerStore(tmp_path).open()
        assert "state_dir" in str(caught.value.hint)
    finally:
        holder.kill()
        holder.wait()
        holder.stdout.close()
    with opened(LocalMarkerStore(tmp_path)):
        pass  # the lock went with its holder


FULL_DISK = """
import resource, sys
from pathlib import Path
from publisher.stores.markers import LocalMarkerStore
from tests.support.markers import CACHE, marker, write
from wormhole.model.errors import MarkerStoreError
store = LocalMarkerStore(Path(sys.argv[1]))
store.open()
store.register(CACHE, marker(0), "latest")
store.store([write(1)])
soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (1024, hard))
for _ in range(2):
    try:
        store.store([write(2)])
    except MarkerStoreError as error:
        print(error)
resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
assert store.load()[CACHE].marker == marker(1)
assert store.store([write(3)]) == ()
assert store.load()[CACHE].marker == marker(3)
print("usable again")
"""


def test_says_once_that_the_disk_is_full_and_is_usable_when_there_is_space_again(tmp_path: Path) -> None:
    process = python(FULL_DISK, tmp_path)
    output, _ = process.communicate(timeout=PATIENCE_S)
    first, second, last = output.splitlines()
    for line in (first, second):
        assert str(tmp_path) in line
        assert "full: make space" in line
    assert (last, process.returncode) == ("usable again", 0)


def test_names_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "markers.sqlite").write_bytes(b"not a database at all, but long enough to be read as one" * 100)
    store = LocalMarkerStore(tmp_path)
    with pytest.raises(MarkerStoreError, match=r"markers\.sqlite") as caught:
        store.open()
    assert "backup" in str(caught.value.hint)
    assert "held until `wormholectl flows accept-loss APP/SHARD`" in str(caught.value.hint)
    assert "closed" in repr(store), "and gives the lock back"


def test_refuses_the_format_of_a_later_release(tmp_path: Path) -> None:
    with opened(LocalMarkerStore(tmp_path)) as store:
        store._connected().execute("PRAGMA user_version = 9")
    with pytest.raises(MarkerStoreError, match="format 9"):
        store.open()


def test_names_a_folder_it_cannot_make(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(MarkerStoreError, match="cannot be opened") as caught:
        LocalMarkerStore(tmp_path / "file" / "state").open()
    assert "state_dir" in str(caught.value.hint)


def test_a_file_of_format_1_is_taken_over(tmp_path: Path) -> None:
    database = sqlite3.connect(tmp_path / "markers.sqlite", isolation_level=None)
    database.execute(
        "CREATE TABLE flows (application TEXT NOT NULL, shard TEXT NOT NULL, epoch INTEGER NOT NULL, marker "
        "BLOB NOT NULL, "
        "start TEXT NOT NULL, filter_hash TEXT NOT NULL, PRIMARY KEY (application, shard)) WITHOUT ROWID"
    )
    database.execute("INSERT INTO flows VALUES (?,?,4,?,'latest','f')", (*CACHE, marker_to_bytes(marker(10))))
    database.execute("PRAGMA user_version = 1")
    database.close()
    with opened(LocalMarkerStore(tmp_path)) as store:
        assert store.load() == {CACHE: StoredFlow(marker(10), 4, "latest", "f")}
        store.set_control(CACHE, FlowControl("maria"))
    with opened(store):
        assert store.load()[CACHE].control == FlowControl("maria")
