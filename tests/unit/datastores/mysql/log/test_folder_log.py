"""A log of which the server has only the last file, and a folder the ones before; over servers:
``tests/integration/test_binlog_folder.py``."""

from __future__ import annotations

import os
import re
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from datastores.mysql.decode import events
from datastores.mysql.decode.gtid import GtidSet
from datastores.mysql.doctor.folder import finding
from datastores.mysql.files.gtids import grew, gtid_of, listed, parse_listed, position_of, together
from datastores.mysql.history.confirmation import Confirmation
from datastores.mysql.history.continuity import Read as History
from datastores.mysql.history.continuity import lost_history
from datastores.mysql.history.incarnations import Incarnations, Lost
from datastores.mysql.log import opening as module
from datastores.mysql.log.dump import Dump, FromFile, FromGtids, Start
from datastores.mysql.log.folder import BinlogFolder
from datastores.mysql.log.folder_log import FolderLog
from datastores.mysql.log.opening import Opening
from datastores.mysql.log.places import Places
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.id_claims import ServerIds
from datastores.mysql.server.state import ServerState, StateQueries
from tests.support import mysql_events as build
from tests.support.given import given
from tests.support.mysql_dump import format_description, insert, rotate, table
from wormhole.host.state_file import FolderState
from wormhole.model.errors import DecodeError, Diverged, PositionPurged, SourceUnavailable
from wormhole.model.findings import Severity
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import SourceOptions
from wormhole.ports.testing.reading import Read

FIRST, OWN = 2, 5  # file of the log, file that the server has
SOURCE = {False: build.UUID_TEXT, True: "0-1"}


class Log:
    """A log of four files with two transactions each: those of file 2 are 1 and 2."""

    def __init__(self, *, mariadb: bool, checksums: bool = True, server_id: int = 1) -> None:
        self.mariadb = mariadb
        self.checksums = checksums
        self.server_id = server_id
        self.streams: dict[int, build.Stream] = {}
        self.ends: list[tuple[int, int]] = []  # the ends of the transactions, as (file, offset)
        number = 0
        for file in range(FIRST, OWN + 1):
            stream = self.begin(file, number)
            for _ in range(2):
                number += 1
                self.transaction(stream, number)
                self.ends.append((file, stream.offset))
            if file < OWN:
                rotate(stream, f"binlog.{file + 1:06}", 4, artificial=False)

    def begin(self, file: int, number: int) -> build.Stream:
        stream = build.Stream(self.checksums, server_id=self.server_id)
        format_description(stream)
        if self.mariadb:
            entries = struct.pack("<IIQ", 0, 1, number) if number else b""
            stream.add(events.GTID_LIST, struct.pack("<I", bool(number)) + entries)
            stream.add(events.BINLOG_CHECKPOINT, bytes(4))
        else:
            logged = GtidSet()
            if number:
                logged.add(build.UUID_TEXT, 1, number)
            stream.add(events.PREVIOUS_GTIDS, logged.encode())
        self.streams[file] = stream
        return stream

    def transaction(self, stream: build.Stream, number: int, *, ends: bool = True) -> None:
        if self.mariadb:
            stream.add(build.MARIADB_GTID, build.mariadb_gtid(0, number, events.FL_TRANSACTIONAL))
            stream.add(events.ANNOTATE_ROWS, b"INSERT")
        else:
            stream.add_all((build.GTID, build.gtid(build.UUID, number, 5)), (build.QUERY, build.query("BEGIN")))
        stream.add_all(table(), insert(number), *([(build.XID, bytes(8))] if ends else []))

    def listed(self, number: int) -> str:
        if not number:
            return ""
        return f"0-1-{number}" if self.mariadb else f"{build.UUID_TEXT}:1" + (f"-{number}" if number > 1 else "")

    def bytes_of(self, file: int) -> bytes:
        return b"\xfebin" + b"".join(self.streams[file].events)

    def fill(self, folder: Path, *files: int) -> None:
        folder.mkdir(exist_ok=True)
        for file in files or range(FIRST, OWN):
            (folder / f"binlog.{file:06}").write_bytes(self.bytes_of(file))


class Connection:
    """Stands for the driver's."""

    def close(self) -> None:
        """Nothing is open."""

    _force_close = close


class Queries(StateQueries):
    """What the server answers; ``first_list``: its first file's."""

    def __init__(self, world: World) -> None:
        super().__init__(mariadb=world.log.mariadb, version=(10, 11, 0), join=world.join)
        self._world = world

    def _view(self, connection: object, settled: bool) -> ServerState:
        return self._world.view

    def _beginning(self, connection: object, name: str) -> list[tuple[str, int, str]]:
        kind = "Gtid_list" if self.mariadb else "Previous_gtids"
        return [
            ("Format_desc", 256, ""),
            (kind, 300, f"[{self._world.own_list}]" if self.mariadb else self._world.own_list),
        ]

    def end(self, connection: object) -> tuple[int, int]:
        return self._world.view.end

    def position_before(self, connection: object, view: ServerState, number: int) -> str:
        if view.kept_file(number) is None:
            return self._world.own_list
        return super().position_before(cast(Any, connection), view, number)


class World:
    """A source over the log."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, log: Log) -> None:
        self.log = log
        self.path = folder / "binlogs"
        self.own_list = log.listed(6)
        end = log.streams[OWN].offset
        whole = log.listed(8)
        purged = "" if log.mariadb else self.own_list
        self.view = ServerState("a", 1, "binlog", ((OWN, end),), (OWN, end), whole, purged, whole)
        self.seen: dict[int, str] = {}
        self.starts: list[Start] = []
        self._sent: dict[int, bytes] = {}  # the bytes that a dump sent
        self.binlogs = BinlogFolder(self.path, mariadb=log.mariadb)
        monkeypatch.setattr(module, "connect", lambda address: Connection())
        monkeypatch.setattr(Dump, "_begin", lambda dump, connection, start, _: self._dumped(dump, connection, start))
        monkeypatch.setattr(Dump, "_receive", lambda dump, *_: self._sent.pop(id(dump), b""))
        self.incarnations = Incarnations(FolderState(folder))
        self.queries = Queries(self)
        ids = ServerIds(41, 42)
        claims = type(
            "Claims", (), {"take": lambda _, __, avoid: ids.take(avoid), "give_back": lambda _, n: ids.give_back(n)}
        )()
        self.opening = Opening(
            cast(Any, None),
            self.queries,
            self.incarnations,
            claims,
            Confirmation(),
            SourceOptions("log", folder, Sharding("log"), max_update_bytes=1 << 20, disk_budget=1 << 20),
            catalog=Catalog(folder / "tables.jsonl"),
            look=lambda connection, catalog: None,
            folder=folder,
            folder_log=FolderLog(self.binlogs, self.queries),
        )
        self.places = Places(self._ask, self.queries, self.incarnations, self.opening)
        self.incarnations.observe(self.view)

    def join(self, view: ServerState) -> ServerState:
        return self.binlogs.join(view, self.seen)

    def joined(self) -> ServerState:
        return self.queries.view(cast(Any, Connection()))

    def kept(self) -> list[int]:
        return [file.number for file in self.joined().kept]

    def open(self, marker: Datamarker) -> Any:
        return self.opening.open(marker, lambda marker: None, lambda reader: None)

    def marker(self, index: int, **more: Any) -> Datamarker:
        """After the transaction ``index``; 0: the log's beginning."""
        file, offset = self.log.ends[index - 1] if index else (FIRST, 4)
        place = LogPosition(1, file, offset)
        return Datamarker(place, self.log.listed(index), place, **more)

    def read(self, marker: Datamarker) -> Read:
        reader = self.open(marker)
        try:
            return whole(reader, marker)
        finally:
            reader.close()

    def _ask(self, question: Callable[[Any], Any]) -> Any:
        return question(Connection())

    def _dumped(self, dump: Dump, connection: Any, start: Start) -> None:
        dump._clear()
        dump._connection = connection
        dump.checksums = self.log.checksums
        self.starts.append(start)
        offset = start.offset if isinstance(start, FromFile) else 4
        sent = build.Stream(self.log.checksums)
        rotate(sent, f"binlog.{OWN:06}", offset)
        for event in self.log.streams[OWN].events:
            place = int.from_bytes(event[13:17], "little") - len(event)
            if (place >= offset or event[4] == events.FORMAT_DESCRIPTION) and event[4] != events.ANNOTATE_ROWS:
                sent.events.append(event)
        self._sent[id(dump)] = sent.packets()


def whole(reader: Any, marker: Datamarker) -> Read:
    read = Read(last_end=marker.order)
    while (segment := reader.read(1 << 20, 0.0)) is not None:
        read.add(segment)
    return read


@pytest.fixture(params=[False, True], ids=["mysql", "mariadb"])
def log(request: pytest.FixtureRequest) -> Log:
    return Log(mariadb=request.param)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: Log) -> World:
    log.fill(tmp_path / "binlogs")
    return World(tmp_path, monkeypatch, log)


def problem(world: World) -> str:
    world.joined()
    return str(world.binlogs.problem)


class TestReading:
    def test_it_goes_over_to_the_server_without_a_hole(self, world: World) -> None:
        begin = world.places.earliest()
        assert begin.order == LogPosition(1, FIRST, 4)
        assert begin.delivered == ""
        read = world.read(begin)
        assert read.keys() == [1, 2, 3, 4, 5, 6, 7, 8]
        assert world.starts == [FromFile("binlog.000005", 4)]
        assert read.markers[-1].delivered == world.log.listed(8)
        for marker in read.markers:  # each with its anchor, which the folder's file proves
            passed = sum(end <= (marker.order.file, marker.order.offset) for end in world.log.ends)
            assert world.read(marker).keys() == list(range(passed + 1, 9))

    def test_an_anchor_that_differs_is_divergence(self, world: World) -> None:
        marker = world.read(world.places.earliest()).markers[0]
        assert marker.anchor is not None
        stream = world.log.streams[FIRST]
        for i, event in enumerate(stream.events):
            if event[4] == build.XID:
                body = event[:19] + b"\1" + event[20:-4]
                stream.events[i] = body + struct.pack("<I", zlib.crc32(body))
        world.log.fill(world.path)
        with pytest.raises(Diverged, match=r"was .* and is"):
            world.open(marker)

    def test_by_gtids_what_was_delivered_is_left_out(self, world: World) -> None:
        found = world.places.locate(world.log.listed(3))
        assert found.order.file == 3
        assert world.read(found).keys() == [4, 5, 6, 7, 8]
        # Only the GTIDs of another server's log are known.
        world.incarnations.observe(ServerState("b", 1, "x", ((1, 900),), (1, 900), ""))
        world.incarnations.observe(world.view)
        marker = Datamarker(LogPosition(2, 1, 700), world.log.listed(3), LogPosition(2, 1, 700))
        world.starts.clear()
        reader = world.open(marker)
        segments = list(iter(lambda: reader.read(1 << 20, 0.0), None))
        reader.close()
        assert segments[-1].marker.delivered == world.log.listed(8)
        assert sum(len(run.ends) for segment in segments for run in segment.runs.values()) == 5
        assert world.starts == [FromGtids(world.log.listed(6))]

    def test_what_the_server_has_is_read_there(self, world: World) -> None:
        world.log.fill(world.path, 2, 3, 4, 5)
        marker = world.marker(7)
        assert world.read(marker).keys() == [8]
        assert world.starts == [FromFile("binlog.000005", marker.order.offset)]
        assert world.places.locate(world.log.listed(6)).order.file == OWN

    def test_places_by_file_and_offset(self, world: World) -> None:
        file, offset = world.log.ends[2]
        for text in (f"binlog.{file:06}:{offset}", f"1/{file}/{offset}"):
            found = world.places.locate(text)
            assert (found.order, found.delivered) == (LogPosition(1, file, offset), world.log.listed(3))
        with pytest.raises(PositionPurged):
            world.places.locate("binlog.000001:4")

    def test_a_marker_inside_of_an_event(self, world: World) -> None:
        marker = world.marker(3)
        inside = LogPosition(1, 3, marker.order.offset - 5)
        with pytest.raises(Diverged, match="no event of"):
            world.open(Datamarker(inside, marker.delivered, inside))

    def test_a_large_event_comes_in_pieces(self, world: World) -> None:
        """One byte less or more than a packet, with the byte in front of it."""
        for extra in (-1, 0, 1):
            log = Log(mariadb=world.log.mariadb)
            stream = without_closing(log, 3)
            stream.add(events.ROWS_QUERY, bytes(0xFFFFFF - 1 - 23 + extra), flags=events.IGNORABLE)
            rotate(stream, "binlog.000004", 4, artificial=False)
            log.fill(world.path)
            assert world.read(world.marker(2)).keys() == [3, 4, 5, 6, 7, 8]

    def test_the_server_purges_while_the_folder_is_read(self, world: World) -> None:
        reader = world.open(world.marker(0))
        (world.path / "binlog.000004").unlink()
        with pytest.raises(SourceUnavailable, match=r" binlog\.000003 .*\[source-unavailable\]"):
            whole(reader, world.marker(0))
        reader.close()

    def test_what_a_server_does_not_send_is_left_out(self, world: World) -> None:
        """The checksum of an anchor is made without it."""
        view = world.joined()
        packets = given(
            FolderLog(world.binlogs, world.queries).packets(cast(Any, None), view, FromFile("binlog.000003", 4))
        )
        stream = b"".join(iter(packets.read, b""))
        assert bytes([build.WRITE]) in stream
        assert b"INSERT" not in stream

    @pytest.mark.parametrize("checksums", [False, True])
    def test_checksums_were_turned_on_or_off(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checksums: bool
    ) -> None:
        """With the folder's second file, and with the server's first one."""
        log, other = Log(mariadb=False, checksums=checksums), Log(mariadb=False, checksums=not checksums)
        log.fill(tmp_path / "binlogs")
        other.fill(tmp_path / "binlogs", 3)
        log.streams[OWN], log.checksums = other.streams[OWN], not checksums
        world = World(tmp_path, monkeypatch, log)
        assert world.read(world.marker(0)).keys() == [1, 2, 3, 4, 5, 6, 7, 8]

    def test_a_file_that_is_written_to_while_it_is_read(self, world: World) -> None:
        view = world.joined()
        (world.path / "binlog.000003").write_bytes(world.log.bytes_of(3) + b"more")
        packets = given(
            FolderLog(world.binlogs, world.queries).packets(cast(Any, None), view, FromFile("binlog.000003", 4))
        )
        assert packets.read()
        with pytest.raises(SourceUnavailable, match="is written to"):
            packets.read()


def without_closing(log: Log, file: int) -> build.Stream:
    stream = log.streams[file]
    stream.offset -= len(stream.events.pop())
    return stream


class TestBorders:
    """Two adjoining files between which something is missing: known when the first was read, and told as a loss."""

    def lost(self, world: World, why: str, at: int = 4) -> PositionPurged:
        """What is said at last to a flow that is at the log's beginning, as the file before ``at`` is not whole."""
        reader = world.open(world.marker(0))
        with pytest.raises(SourceUnavailable, match=why):
            whole(reader, world.marker(0))
        reader.close()
        assert re.search(why, problem(world))
        assert world.places.earliest().order.file == at
        with pytest.raises(PositionPurged) as error:
            world.open(world.marker(1))
        return error.value

    def test_a_file_cut_between_two_events(self, world: World) -> None:
        without_closing(world.log, 3)
        del world.log.streams[3].events[-4 if not world.log.mariadb else -5 :]
        if not world.log.mariadb:
            del world.log.streams[3].events[-1]
        world.log.fill(world.path)
        error = self.lost(world, "it is not closed, and is cut or still being written")
        assert given(error.first_missing).endswith(("2-4", "-2"))
        assert "is not closed" in problem(world)

    def test_a_file_cut_inside_of_a_transaction(self, world: World) -> None:
        """It is not taken for one that was rolled back: the next file lists it."""
        without_closing(world.log, 3)
        without_closing(world.log, 3)
        world.log.fill(world.path)
        self.lost(world, "it is not closed, and is cut or still being written")

    def test_a_file_of_another_server_that_looks_alike(self, world: World) -> None:
        """Same name, same server id, the same first GTIDs; but it has one transaction more."""
        other = Log(mariadb=world.log.mariadb)
        stream = without_closing(other, 3)
        other.transaction(stream, 5)
        rotate(stream, "binlog.000004", 4, artificial=False)
        other.fill(world.path, 3)
        self.lost(world, "the file behind it does not continue it: .*5 is not in the history that follows")

    def test_the_servers_first_file_does_not_continue_the_last_one(self, world: World) -> None:
        world.own_list = world.log.listed(7)
        if not world.log.mariadb:
            world.view = replace(world.view, purged=world.own_list)
        self.lost(world, "the file behind it does not continue it: .* is missing", at=OWN)

    def test_a_server_that_was_killed_leaves_a_whole_file(self, world: World) -> None:
        without_closing(world.log, 3)
        world.log.fill(world.path)
        assert world.read(world.marker(0)).keys() == [1, 2, 3, 4, 5, 6, 7, 8]

    def test_a_transaction_that_the_server_did_not_finish_is_not_delivered(self, world: World) -> None:
        """Its number is given again."""
        stream = without_closing(world.log, 3)
        world.log.transaction(stream, 5, ends=False)
        world.log.fill(world.path)
        path = world.path / "binlog.000003"
        path.write_bytes(world.log.bytes_of(3)[:-7])
        assert world.read(world.marker(0)).keys() == [1, 2, 3, 4, 5, 6, 7, 8]
        assert world.opening.leads(world.joined(), FIRST)

    def test_a_server_that_was_shut_down(self, world: World) -> None:
        without_closing(world.log, 3).add(events.STOP, b"")
        world.log.fill(world.path)
        assert world.read(world.marker(0)).keys() == [1, 2, 3, 4, 5, 6, 7, 8]

    def test_a_file_cut_inside_of_an_event_is_looked_at_again_once_it_is_written_to(self, world: World) -> None:
        path = world.path / "binlog.000003"
        path.write_bytes(world.log.bytes_of(3)[:-60])
        self.lost(world, "it is not closed")
        path.write_bytes(world.log.bytes_of(3))
        assert world.read(world.marker(0)).keys() == [1, 2, 3, 4, 5, 6, 7, 8]
        assert not problem(world)


class TestIdentity:
    """Files that do not count, with all that lie before them."""

    def test_a_missing_file(self, world: World) -> None:
        (world.path / "binlog.000003").unlink()
        assert world.kept() == [4]
        with pytest.raises(PositionPurged):
            world.open(world.marker(1))

    def test_no_folder(self, world: World) -> None:
        for file in world.path.iterdir():
            file.unlink()
        assert world.kept() == []
        assert not problem(world)
        world.path.rmdir()
        assert "is no folder" in problem(world)

    def test_another_server_id(self, world: World) -> None:
        world.seen[4] = world.joined().kept[-1].fingerprint
        world.view = replace(world.view, server_id=2)
        # Seen by a reader, a file is the server's own, from before that got another id.
        assert world.kept() == [4]
        assert "begun by a server with server_id 1, and this one has 2" in problem(world)

    def test_another_content_than_was_seen(self, world: World) -> None:
        world.seen[3] = "1600000000-1-00000000"
        assert world.kept() == [4]
        assert "it is another file than the one that was read" in problem(world)

    def test_another_history(self, world: World) -> None:
        """Same server id, and its own GTIDs."""
        other = Log(mariadb=world.log.mariadb)
        stream = other.begin(3, 0)
        other.transaction(stream, 77)
        rotate(stream, "binlog.000004", 4, artificial=False)
        other.fill(world.path, 3)
        assert world.kept() == [4]
        assert "not in the history of the file behind it" in problem(world)

    def test_another_name(self, world: World) -> None:
        for file in world.path.iterdir():
            file.rename(file.with_name(file.name.replace("binlog", "mysql-bin")))
        assert world.kept() == []

    @pytest.mark.parametrize(
        ("content", "why"),
        [
            (b"", "it is no binlog file"),
            (b"\xfdbin" + bytes(500), "it is encrypted"),
            (b"\xfebin", "it ends before its format description"),
            (b"\xfebin" + b"x" * 7, "it is cut in its beginning"),
            (b"\xfebin" + b"x" * 700, "what is at 4 is no event"),
        ],
    )
    def test_no_binlog_file(self, world: World, content: bytes, why: str) -> None:
        (world.path / "binlog.000003").write_bytes(content)
        assert world.kept() == [4]
        assert f"binlog.000003: {why}" in problem(world)

    def test_a_file_that_begins_with_another_event(self, world: World) -> None:
        stream = build.Stream()
        stream.add(events.STOP, b"")
        (world.path / "binlog.000003").write_bytes(b"\xfebin" + stream.events[0])
        assert "it begins with STOP" in problem(world)

    def test_an_encrypted_file_of_mariadb(self, world: World) -> None:
        """What follows the event that says so is no event; a file fetched with --raw holds it in the clear."""
        stream = build.Stream()
        format_description(stream)
        stream.add(events.START_ENCRYPTION, bytes(17))
        path = world.path / "binlog.000003"
        path.write_bytes(b"\xfebin" + b"".join(stream.events) + b"\x5a" * 300)
        assert "it is encrypted" in problem(world)
        stream.add(events.GTID_LIST, bytes(4))
        path.write_bytes(b"\xfebin" + b"".join(stream.events))
        assert "is encrypted" not in problem(world)

    def test_a_file_that_may_not_be_read(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        path = world.path / "binlog.000003"
        opened = Path.open

        def refuse(self: Path, *args: Any, **more: Any) -> Any:
            if self == path:
                raise PermissionError(13, "Permission denied")
            return opened(self, *args, **more)

        monkeypatch.setattr(Path, "open", refuse)
        assert "binlog.000003: it cannot be read: Permission denied" in problem(world)
        assert world.kept() == [4]
        monkeypatch.undo()

    def test_it_becomes_unreadable_later(self, world: World) -> None:
        view = world.joined()
        (world.path / "binlog.000003").unlink()
        packets = given(
            FolderLog(world.binlogs, world.queries).packets(cast(Any, None), view, FromFile("binlog.000003", 4))
        )
        packets.read()
        with pytest.raises(SourceUnavailable, match="cannot be read"):
            packets.read()

    def test_a_file_that_changes_between_two_looks(self, world: World) -> None:
        assert world.kept() == [2, 3, 4]
        path = world.path / "binlog.000003"
        Log(mariadb=world.log.mariadb, server_id=2).fill(world.path, 3)
        os.utime(path, ns=(1, 1))
        assert world.kept() == [4]


class TestDamage:
    @pytest.fixture
    def damaged(self, world: World) -> World:
        """One byte of a row of transaction 4 is another one."""
        data = bytearray(world.log.bytes_of(3))
        data[world.log.ends[3][1] - 40] ^= 1
        (world.path / "binlog.000003").write_bytes(data)
        return world

    def test_a_changed_byte(self, damaged: World) -> None:
        reader = damaged.open(damaged.marker(0))
        read = Read()
        with pytest.raises(DecodeError) as error:
            while True:
                read.add(reader.read(1 << 20, 0.0))
        assert read.keys() == [1, 2, 3]
        assert "checksum" in str(error.value)
        assert "1/3/" in str(error.value.position)
        reader.close()

    def test_events_that_do_not_adjoin(self, world: World) -> None:
        data = world.log.bytes_of(3)
        (world.path / "binlog.000003").write_bytes(data[: -len(world.log.streams[3].events[-1])] + b"\1" * 60)
        reader = world.open(world.marker(0))
        with pytest.raises(DecodeError, match=r"binlog\.000003: what is at \d+ is no event") as error:
            whole(reader, world.marker(0))
        assert "copy it from the server or a backup again" in str(error.value.hint)
        reader.close()
        assert not world.opening.leads(world.joined(), FIRST)


@pytest.mark.parametrize("closed", [True, False])
def test_without_gtids_only_a_closed_file_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, closed: bool
) -> None:
    log = Log(mariadb=False)
    for file in log.streams:
        stream = log.begin(file, 0)
        stream.add_all(
            (build.ANONYMOUS, build.gtid(bytes(16), 0, 5)), (build.QUERY, build.query("BEGIN")), table(), insert(file)
        )
        stream.add(build.XID, bytes(8))
        if file < OWN and (closed or file != 3):
            rotate(stream, f"binlog.{file + 1:06}", 4, artificial=False)
    log.fill(tmp_path / "binlogs")
    world = World(tmp_path, monkeypatch, log)
    end = log.streams[OWN].offset
    world.own_list = ""
    world.view = ServerState("a", 1, "binlog", ((OWN, end),), (OWN, end), "")
    if closed:
        assert world.read(world.places.earliest()).keys() == [2, 3, 4, 5]
        assert not world.opening.leads(world.joined(), FIRST), "nothing shows that no history is mixed"
        return
    reader = world.open(world.places.earliest())
    with pytest.raises(SourceUnavailable, match="it is not closed: it ends without naming the next file"):
        whole(reader, world.marker(0))
    reader.close()
    with pytest.raises(PositionPurged):
        world.open(world.marker(0))


class TestDoctor:
    def found(self, world: World) -> tuple[Severity, str]:
        found = finding(cast(Any, Connection()), StandIn(world), world.path)
        assert found.next_step or found.severity is Severity.OK
        return found.severity, found.what

    def test_what_adjoins(self, world: World) -> None:
        severity, what = self.found(world)
        assert severity is Severity.OK
        assert "has binlog.000002 to binlog.000004 (0 MiB), begun 2023-11-14 22:13:20 UTC" in what
        assert what.endswith("which adjoin the server's log, which begins with binlog.000005")

    def test_the_last_file_is_not_whole(self, world: World) -> None:
        (world.path / "binlog.000004").write_bytes(world.log.bytes_of(4)[:-60])
        severity, what = self.found(world)
        assert severity is Severity.PROBLEM
        assert "which do not adjoin" in what
        data = world.log.bytes_of(4)
        (world.path / "binlog.000004").write_bytes(data[:-44] + b"\1" * 44)
        assert "is no event" in self.found(world)[1]

    def test_a_hole_in_front(self, world: World) -> None:
        (world.path / "binlog.000003").write_bytes(b"")
        severity, what = self.found(world)
        assert severity is Severity.WARN
        assert "binlog.000004 to binlog.000004" in what
        assert "nothing before them is read" in what

    def test_a_hole_behind(self, world: World) -> None:
        (world.path / "binlog.000004").unlink()
        severity, what = self.found(world)
        assert severity is Severity.WARN
        assert "has binlog.000002 to binlog.000003, and binlog.000004 is missing" in what
        (world.path / "binlog.000004").write_bytes(b"")
        assert self.found(world) == (Severity.WARN, f"{world.path}/binlog.000004: it is no binlog file")

    def test_nothing(self, world: World) -> None:
        for file in world.path.iterdir():
            file.unlink()
        assert self.found(world) == (Severity.WARN, f"{world.path} has no file binlog.NNNNNN")

    def test_what_the_server_has_still(self, world: World) -> None:
        for file in world.path.iterdir():
            file.unlink()
        world.log.fill(world.path, 5)
        severity, what = self.found(world)
        assert (severity, what) == (
            Severity.OK,
            f"{world.path} has binlog.000005 to binlog.000005, which the server has still",
        )
        world.own_list = world.log.listed(5)
        assert "another file than the server's own" in self.found(world)[1]
        (world.path / "binlog.000005").write_bytes(b"\xfdbin")
        assert self.found(world) == (Severity.WARN, f"{world.path}/binlog.000005: it is encrypted")


class StandIn(Queries):
    """As the doctor asks: without a folder of its own."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._join = None


def test_a_domain_that_was_deleted_is_no_hole() -> None:
    """FLUSH BINARY LOGS DELETE_DOMAIN_ID."""
    gtids = parse_listed("0-1-5,7-1-3", mariadb=True)
    gtids.add(("0-1", 6))
    assert gtids.differs("0-1-6") == ""
    assert gtids.differs("0-1-8") == "0-1-7 to 0-1-8 is missing"
    assert grew("0-1-5,7-1-3", ("0-1", 6), "0-1-6", mariadb=True)
    assert not grew("0-1-5", ("0-2", 6), "0-1-6", mariadb=True)
    assert not grew("0-1-5", None, "0-1-4", mariadb=True)
    gtids.add(("7-1", 4))
    assert gtids.differs("0-1-6") == "7-1-4 is not in the history that follows"


def test_the_position_of_a_list_has_the_last_of_each_domain() -> None:
    assert position_of("0-1-5,0-2-9,1-1-3") == "0-2-9,1-1-3"
    assert together("0-2-7,2-1-1", "0-1-5,0-2-9", mariadb=True) == "0-2-9,2-1-1"
    assert together("0-2-17", "0-1-5,0-2-9", mariadb=True) == "0-2-17"


@pytest.mark.parametrize(("kind", "body"), [(build.GTID, bytes(24)), (build.MARIADB_GTID, bytes(11))])
def test_a_gtid_that_is_cut(kind: int, body: bytes) -> None:
    with pytest.raises(DecodeError, match="is cut"):
        gtid_of(build.Stream(checksums=False).add(kind, body))
    with pytest.raises(DecodeError, match="is cut"):
        listed(build.Stream(checksums=False).add(events.GTID_LIST, struct.pack("<I", 2)))


def test_the_history_is_proven_by_the_folder(world: World) -> None:
    """The server purged every file that was seen, and the folder has one of them."""
    head = world.joined().kept[0]
    world.incarnations.check_file(1, head.number, head.fingerprint)
    said: list[str] = []

    def lost(leads: Callable[[int], bool]) -> Lost | None:
        return lost_history(world.incarnations, world.joined(), str, said.append, None, leads)

    assert lost(lambda file: world.opening.leads(world.joined(), file)) is None
    world.own_list = world.log.listed(7)
    found = given(lost(lambda file: world.opening.leads(world.joined(), file)))
    assert found.unproven


def test_a_shorter_file_of_the_folder_is_no_loss_of_the_server(world: World) -> None:
    place = LogPosition(1, 3, 1 << 20)
    head = world.joined().kept[1]
    world.incarnations.check_file(1, OWN, head.fingerprint)
    read = History(place, "")
    found = lost_history(world.incarnations, world.joined(), lambda _: head.fingerprint, lambda _: None, read)
    assert found is None
