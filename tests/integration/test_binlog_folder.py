"""A server that purged, and a folder that has what it purged: filled with the server's own tool, and by copying."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from datastores.mysql.datastore import DATASTORE
from scripts.prepare import ROOT
from tests.support.databases import DatabaseServer, NewServer, purge
from tests.support.server_tail import Tail
from wormhole.model.errors import DecodeError, PositionPurged, SourceUnavailable
from wormhole.model.findings import Severity
from wormhole.model.position import Datamarker
from wormhole.ports.datastore import Login
from wormhole.ports.testing.reading import Read, read_until

ALL_KEYS = [1, 2, 3, 4, 2, 5, 6]


OPTIONS = "--read-from-remote-server --raw --to-last-log"


def fetch(server: DatabaseServer, folder: Path) -> None:
    """As docs/mysql.md says it, with the publisher's account. The program writes where its root is."""
    assert f"mariadb-binlog {OPTIONS} " in (ROOT / "docs/mysql.md").read_text()
    inside = server.folder / "raw"
    inside.mkdir()
    account = [f"--user={server.user}", f"--password={server.password}"]
    result = f"--result-file={server.seen(inside)}/"
    command = [*server.command("binlog"), *account, *OPTIONS.split(), result, server.binlogs[0].name]
    subprocess.run(command, check=True, capture_output=True)
    shutil.copytree(inside, folder)


def copy(server: DatabaseServer, folder: Path) -> None:
    """The server's data folder, as it is: also the file that is written."""
    shutil.copytree(server.data, folder, ignore=lambda _, names: [n for n in names if not n.startswith("binlog.")])


def write(server: DatabaseServer) -> None:
    """Files that end with a rotation and with a kill; a large row, and compressed events."""
    compressed = (
        "SET GLOBAL log_bin_compress = 1"
        if server.flavour == "mariadb"
        else "SET SESSION binlog_transaction_compression = 1"
    )
    server.sql(
        "CREATE TABLE shop.v (id INT PRIMARY KEY, v LONGTEXT)",
        "INSERT INTO shop.v VALUES (1, 'a')",
        "FLUSH BINARY LOGS",
        "INSERT INTO shop.v VALUES (2, REPEAT('x', 300000))",
        compressed,
        "INSERT INTO shop.v VALUES (3, REPEAT('y', 5000))",
    )
    server.kill()
    server.start()
    server.sql("INSERT INTO shop.v VALUES (4, 'd')", "UPDATE shop.v SET v = 'b' WHERE id = 2")
    server.sql("INSERT INTO shop.v VALUES (5, 'e')", "FLUSH BINARY LOGS", "INSERT INTO shop.v VALUES (6, 'f')")


def test_the_folder_reaches_back_behind_a_purge(new_shop: NewServer, tail: Callable[..., Tail], tmp_path: Path) -> None:
    server = new_shop()
    fetched, copied = tmp_path / "fetched", tmp_path / "copied"
    one = tail(server)
    earliest, start = one.source.earliest(), one.source.latest()
    write(server)
    before, everything = one.read(start), one.read(earliest)
    assert before.keys() == ALL_KEYS
    after = [one.read(marker).updates for marker in before.markers]
    at_us = before.updates[0].committed_at_us + 1_000_000  # MariaDB's times are whole seconds
    moment = one.source.locate_time(at_us).delivered
    one.stop()  # and all that it read is purged while it is down
    copy(server, copied)
    fetch(server, fetched)
    purge(server)

    again = tail(server, binlog_folder=fetched)
    assert again.source.earliest() == earliest
    assert again.source.status().oldest == earliest.order
    assert not again.source.status().problems
    assert again.read(earliest).updates == everything.updates
    found = again.read(start)
    assert found.updates == before.updates
    assert found.markers[-1].anchor == before.markers[-1].anchor
    assert found.markers[-1].delivered == before.markers[-1].delivered
    for marker, updates in zip(before.markers, after, strict=True):
        assert again.read(marker).updates == updates
        assert again.source.locate(str(marker.order)).order == marker.order
        assert again.read(again.source.locate(marker.delivered)).updates == updates
    assert again.source.locate_time(at_us).delivered == moment

    # Half of it from the one folder, the rest from the other: the border is crossed while the server writes.
    reader = again.source.open(start)
    read = Read(last_end=start.order)
    while len(read.updates) < 3 or read.unfinished:
        segment = reader.read(1, 0.2)
        assert segment is not None
        read.add(segment)
    reader.close()
    again.stop()
    third = tail(server, binlog_folder=copied)
    reader = third.source.open(read.markers[-1])
    server.sql("INSERT INTO shop.v VALUES (7, 'g')")
    read_until(reader, third.source.latest().order, into=read)
    reader.close()
    assert read.keys() == [*ALL_KEYS, 7]
    assert read.updates[: len(ALL_KEYS)] == before.updates
    report = DATASTORE.examine_binlog_folder(server.url, Login(server.password_file), copied)
    assert [one.severity for one in report] == [Severity.OK], report
    assert re.search(r"binlog\.000001 to binlog\.000003 .* adjoin the server's log", report[0].what)
    faults(server, third, copied, start, before)


def faults(server: DatabaseServer, tail: Tail, folder: Path, start: Datamarker, before: Read) -> None:
    """What is not the server's log, or not all of it, is not passed over in silence."""
    source = tail.source
    last = folder / "binlog.000003"
    good = last.read_bytes()
    rotate_at = good.rindex(b"binlog.000004") - 19 - 8

    def fails(kind: type[Exception], why: str) -> Read:
        read = Read(last_end=start.order)
        reader = source.open(start)
        with pytest.raises(kind, match=why):
            read_until(reader, source.latest().order, into=read)
        reader.close()
        assert read.keys() == [1, 2, 3, 4, 2]
        return read

    # Cut between two events, and without the commit of 5: known at its end, and told with what is missing.
    last.write_bytes(good[: rotate_at - 31])
    read = fails(SourceUnavailable, "it is not closed, and is cut or still being written")
    with pytest.raises(PositionPurged) as purged:
        source.open(read.markers[-1])
    assert purged.value.first_missing
    assert "is not closed" in str(source.status().problems)
    # A changed byte of a row.
    last.write_bytes(good[: rotate_at - 40] + bytes([good[rotate_at - 40] ^ 1]) + good[rotate_at - 39 :])
    assert source.earliest().order.file == 1
    fails(DecodeError, "checksum")
    # A hole.
    last.unlink()
    assert source.earliest().order.file == 4
    with pytest.raises(PositionPurged):
        source.open(start)
    (said,) = DATASTORE.examine_binlog_folder(server.url, Login(server.password_file), folder)
    assert (said.severity, "binlog.000003 is missing" in said.what) == (Severity.WARN, True)
    # Another content under the same name, as a reader saw it.
    last.write_bytes(good)
    assert tail.read(start).updates[: len(ALL_KEYS)] == before.updates
    shutil.copy(folder / "binlog.000002", last)
    with pytest.raises(PositionPurged):
        source.open(start)
