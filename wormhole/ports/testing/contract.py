"""The contract of :mod:`wormhole.ports.log_source` as tests that run over any source.

A test module of a source defines a :class:`Harness` of it, a fixture ``new_harness`` and a subclass of
:class:`LogSourceContract` (docs/write-a-source.md). :mod:`wormhole.ports.testing.plugin` has the other fixtures.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, cast

import pytest

from wormhole.model.errors import Diverged, PositionError, PositionPurged
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.sharding import Sharding, shard_of_hash, shard_of_table
from wormhole.ports.log_source import LogSource
from wormhole.ports.testing.reading import Read, read_log, read_until

__all__ = ["Change", "Harness", "LogSourceContract", "MakeHarness"]

Change = tuple[Literal["put", "delete"], str, bytes, bytes] | tuple[Literal["delete"], str, bytes]
"""Operation, table (``a`` or ``b``), key and, for a put, value."""


class Harness(ABC):
    """A datastore with the tables ``a`` and ``b``, and its started source. The log is named ``log``."""

    source: LogSource

    bounded_by_bytes = True
    """Whether the log is kept up to a number of bytes."""

    put = "upsert"
    """The operation as which a put of a new key is delivered."""

    several = True
    """Whether a transaction can hold several changes."""

    @abstractmethod
    def commit(self, changes: Sequence[Change]) -> None:
        """Commit one transaction, or one for each change if a transaction cannot hold :attr:`several`."""

    @abstractmethod
    def rotate(self) -> None:
        """Let the log continue in another file. Does nothing if the log is one file."""

    @abstractmethod
    def restart(self) -> None:
        """Stop the source, and start another one with the files that this one left on disk."""

    @abstractmethod
    def purge(self) -> None:
        """Make the datastore delete all of its log so far, then commit a put of the key ``after the purge``."""

    @abstractmethod
    def save(self) -> None:
        """Save the datastore's state for :meth:`lose_tail`."""

    @abstractmethod
    def lose_tail(self, to: Datamarker) -> None:
        """Restore the datastore to ``to``, the place of :meth:`save`, then commit a put of the key ``another
        history``.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop the source and the datastore."""

    def committed(self, read: Read) -> list[tuple[str, str, bytes]]:
        """Operation, table name in updates and key of each change that was read, in committed form."""
        return [(update.op, update.table, cast(bytes, update.key[0])) for update in read.updates]

    def table(self, name: str) -> str:
        """The table's name in updates."""
        return name

    def shard(self, table: str) -> str:
        """The shard of a table if each table is one shard."""
        return shard_of_table("log", table)

    def after(self, key: bytes, value: bytes) -> tuple[bytes, ...]:
        """The values of a row after a put, as an update holds them."""
        return (value,)

    def after_delivered(self, marker: Datamarker) -> str:
        """The text with which :meth:`LogSource.locate` finds a marker by its logical position."""
        return f"seq:{marker.delivered}"

    def first_missing(self, marker: Datamarker) -> str:
        """The text of the first logical position after the marker in a data loss."""
        return str(int(marker.delivered) + 1)


MakeHarness = Callable[[Sharding], Harness]


def _put(harness: Harness, first: int, count: int) -> None:
    for n in range(first, first + count):
        harness.commit([("put", "a", b"%04d" % n, b"v%d" % n)])


def _keys_of(harness: Harness, read: Read) -> list[bytes]:
    return [key for _, _, key in harness.committed(read)]


def _keys(first: int, end: int) -> list[bytes]:
    return [b"%04d" % n for n in range(first, end)]


def _mixed(harness: Harness) -> list[Change]:
    """Commit transactions of one to four updates over both tables and several files; returns their changes."""
    committed: list[Change] = []
    for n in range(60):
        changes: list[Change] = [("put", "ab"[k % 2], b"%04d" % (n * 10 + k), b"v" * n) for k in range(n % 3 + 1)]
        if n % 7 == 6:
            changes.append(("delete", "a", b"%04d" % ((n - 1) * 10)))
        harness.commit(changes)
        committed += changes
        if n % 20 == 19:
            harness.rotate()
    return committed


def _moved(marker: Datamarker, order: LogPosition) -> Datamarker:
    return replace(marker, order=order, read_from=order)


class LogSourceContract:
    """The tests. Each gets a fresh harness; docs/write-a-source.md shows a subclass."""

    # --- order --------------------------------------------------------------------------------------------------------

    def test_everything_once_in_commit_order(self, harness: Harness) -> None:
        start = harness.source.latest()
        committed = _mixed(harness)
        read = read_log(harness.source, start)
        expected = [
            (harness.put if change[0] == "put" else "delete", harness.table(change[1]), change[2])
            for change in committed
        ]
        assert harness.committed(read) == expected, "an update is missing, comes twice, or is out of commit order"
        assert len(set(read.ids())) == len(read.updates), "two updates have one id"
        assert len(read.ended) == (60 if harness.several else len(committed)), "each transaction ends once"
        read.check_ends()
        assert not read.gaps
        assert read_log(harness.source, start, 64).updates == read.updates, "what is read depends on max_bytes"

    def test_the_values_and_operations_arrive(self, harness: Harness) -> None:
        harness.commit([("put", "b", b"x", b"")])
        start = harness.source.latest()
        harness.commit([("put", "a", b"k", b"v"), ("delete", "b", b"x"), ("put", "b", b"", b"")])
        read = read_log(harness.source, start)
        assert [(u.op, u.table, u.key, u.after) for u in read.updates] == [
            (harness.put, harness.table("a"), (b"k",), harness.after(b"k", b"v")),
            ("delete", harness.table("b"), (b"x",), ()),
            (harness.put, harness.table("b"), (b"",), harness.after(b"", b"")),
        ]

    def test_two_readers_do_not_disturb_each_other(self, harness: Harness) -> None:
        start = harness.source.latest()
        _put(harness, 0, 10)
        first, second = harness.source.open(start), harness.source.open(start)
        end = harness.source.latest().order
        assert read_until(first, end).updates == read_until(second, end).updates
        first.close()
        second.close()

    # --- duplicates ---------------------------------------------------------------------------------------------------

    def test_a_reader_opened_at_a_marker_begins_with_the_next_transaction(self, harness: Harness) -> None:
        start = harness.source.latest()
        _mixed(harness)
        whole = read_log(harness.source, start, 200)
        assert len(whole.markers) > 5
        reader = harness.source.open(start)
        read = Read()
        end = harness.source.latest().order
        while read.last_end is None or read.last_end < end:
            segment = reader.read(200, 1.0)
            assert segment is not None
            read.add(segment)
            # Only every fifth marker, because each needs a reader that reads to the end.
            if segment.marker is not None and len(read.markers) % 5 == 1:
                rest = read_log(harness.source, segment.marker)
                assert read.ids() + rest.ids() == whole.ids(), (
                    f"a reader opened at {segment.marker.order} does not begin with the next transaction"
                )
        reader.close()

    def test_markers_and_times_outlive_a_restart(self, harness: Harness) -> None:
        start = harness.source.latest()
        began_us = time.time_ns() // 1000 - 1_000_000  # a second earlier, because some logs have whole seconds
        for n in range(3):
            _put(harness, n * 3, 3)
            harness.rotate()
        reader = harness.source.open(start)
        live = read_until(reader, harness.source.latest().order)
        reader.close()
        times = [u.committed_at_us for u in live.updates]
        assert times == sorted(times)
        assert began_us <= times[0] <= times[-1] <= time.time_ns() // 1000
        _put(harness, 9, 5)
        whole = read_log(harness.source, start).updates
        assert whole[:9] == live.updates, "a second reading gives other updates or times"
        harness.rotate()
        harness.restart()
        assert read_log(harness.source, live.markers[-1]).updates == whole[9:], (
            "after a restart a marker leads to another place"
        )
        assert read_log(harness.source, start, 1).updates == whole, "after a restart the log reads differently"

    # --- transactions -------------------------------------------------------------------------------------------------

    def test_a_large_one_comes_in_pieces_and_ends_once(self, harness: Harness) -> None:
        start = harness.source.latest()
        _put(harness, 0, 1)
        harness.commit([("put", "ab"[n % 2], b"%05d" % n, b"x" * 80_000) for n in range(100)])
        _put(harness, 1, 1)
        read = read_log(harness.source, start, 500_000)
        assert read.pieces >= 10
        assert read.largest < 800_000, "a piece is much larger than the size asked for"
        assert len(read.updates) == 102
        assert len(read.ended) == 3
        big = [u for u in read.updates if u.id.rpartition(":")[0] == read.ended[1][1]]
        assert [int(u.id.rpartition(":")[2]) for u in big] == list(range(100))
        assert [u.key[0] for u in big] == [b"%05d" % n for n in range(100)]

    # --- the live end -------------------------------------------------------------------------------------------------

    def test_a_read_at_the_end_waits_and_returns_nothing(self, harness: Harness) -> None:
        reader = harness.source.open(harness.source.latest())
        while (segment := reader.read(1 << 20, 0.05)) is not None:
            assert not segment.updates
        reader.close()

    def test_a_waiting_read_gets_what_is_committed(self, harness: Harness) -> None:
        marker = harness.source.latest()
        reader = harness.source.open(marker)
        writer = threading.Timer(0.1, lambda: _put(harness, 0, 1))
        writer.start()
        read = Read()
        while not read.updates:
            if (segment := reader.read(1 << 20, 86_400.0)) is not None:
                read.add(segment)
        writer.join()
        assert _keys_of(harness, read) == [b"0000"]
        reader.close()

    def test_close_ends_a_waiting_read(self, harness: Harness) -> None:
        reader = harness.source.open(harness.source.latest())
        while reader.read(1 << 20, 0.0) is not None:
            pass
        closer = threading.Timer(0.1, reader.close)
        closer.start()
        while (segment := reader.read(1 << 20, 86_400.0)) is not None:
            assert not segment.updates  # a server writes into its log by itself, now and then
        closer.join()
        reader.close()

    def test_reads_over_new_files_as_they_come(self, harness: Harness) -> None:
        reader = harness.source.open(harness.source.latest())
        read = Read()
        for n in range(3):
            _put(harness, n, 1)
            harness.rotate()
            read_until(reader, harness.source.latest().order, into=read)
        assert _keys_of(harness, read) == _keys(0, 3)
        reader.close()

    # --- places -------------------------------------------------------------------------------------------------------

    def test_earliest_comes_first_and_latest_last(self, harness: Harness) -> None:
        _put(harness, 0, 3)
        assert harness.source.earliest().order <= harness.source.latest().order
        before = harness.source.latest()
        _put(harness, 3, 1)
        assert harness.source.latest().order > before.order
        assert _keys_of(harness, read_log(harness.source, before)) == _keys(3, 4)
        assert _keys_of(harness, read_log(harness.source, harness.source.earliest()))[-4:] == _keys(0, 4)

    def test_locate(self, harness: Harness) -> None:
        _put(harness, 0, 3)
        source = harness.source
        assert source.locate("latest") == source.latest()
        assert source.locate("earliest") == source.earliest()
        marker = source.latest()
        _put(harness, 3, 2)
        assert source.locate(str(marker.order)).order == marker.order
        assert source.locate(harness.after_delivered(marker)).order == marker.order
        rest = read_log(harness.source, source.locate(harness.after_delivered(marker)))
        assert _keys_of(harness, rest) == _keys(3, 5)

    def test_a_text_that_is_no_position_of_the_log_is_refused(self, harness: Harness) -> None:
        _put(harness, 0, 1)
        for text in ("", "yesterday", "seq:", "seq:x", "1/2", "seq:99999999", "1/99999999/0", "9/1/0"):
            with pytest.raises((PositionError, Diverged)) as error:
                pytest.fail(f"{text!r} is taken for {harness.source.locate(text)}")
            assert error.value.hint, f"{text!r} is refused without a hint"

    def test_the_status_has_both_ends(self, harness: Harness) -> None:
        _put(harness, 0, 3)
        read_log(harness.source, harness.source.earliest())
        before = harness.source.latest().order
        status = harness.source.status()
        assert status.oldest <= harness.source.earliest().order
        assert before <= status.end <= harness.source.latest().order  # a server writes its log by itself too
        assert not status.problems
        assert list(status.files) == sorted(status.files)
        number, size = status.files[-1]
        assert (number, size) >= (status.end.file, status.end.offset)
        assert bool(status.budget_bytes) == harness.bounded_by_bytes

    # --- loss ---------------------------------------------------------------------------------------------------------

    def test_a_marker_before_what_is_kept(self, harness: Harness) -> None:
        start = harness.source.latest()
        _put(harness, 0, 5)
        marker = read_log(harness.source, start, 1).markers[1]
        harness.purge()
        with pytest.raises(PositionPurged) as error:
            harness.source.open(marker)
        assert error.value.hint
        assert error.value.first_missing.startswith(harness.first_missing(marker))
        assert error.value.last_missing
        rest = read_log(harness.source, harness.source.earliest())
        assert _keys_of(harness, rest)[-1] == b"after the purge"

    def test_a_marker_ahead_of_the_log(self, harness: Harness) -> None:
        _put(harness, 0, 1)
        latest = harness.source.latest()
        for ahead in (
            _moved(latest, LogPosition(latest.order.incarnation, latest.order.file, latest.order.offset + 4096)),
            _moved(latest, LogPosition(latest.order.incarnation, latest.order.file + 1000, 0)),
            _moved(latest, LogPosition(latest.order.incarnation + 1, latest.order.file, latest.order.offset)),
        ):
            with pytest.raises(Diverged) as error:
                harness.source.open(ahead)
            assert error.value.hint
            assert str(ahead.order) in str(error.value)

    def test_another_anchor_is_another_log(self, harness: Harness) -> None:
        start = harness.source.latest()
        _put(harness, 0, 3)
        marker = read_log(harness.source, start).markers[-1]
        assert marker.anchor is not None
        harness.source.open(marker).close()
        forged = replace(marker, anchor=replace(marker.anchor, checksum=marker.anchor.checksum ^ 1))
        with pytest.raises(Diverged) as error:
            harness.source.open(forged)
        assert error.value.hint

    def test_a_restored_datastore_is_another_log(self, harness: Harness) -> None:
        start = harness.source.latest()
        _put(harness, 0, 3)
        harness.save()
        saved = harness.source.latest()
        _put(harness, 3, 1)
        marker = read_log(harness.source, start).markers[-1]
        harness.lose_tail(saved)
        with pytest.raises(Diverged) as error:
            harness.source.open(marker)
        assert error.value.hint
        rest = read_log(harness.source, harness.source.earliest())
        assert _keys_of(harness, rest)[-1] == b"another history"

    # --- release ------------------------------------------------------------------------------------------------------

    def test_what_is_not_released_can_be_read(self, harness: Harness) -> None:
        start = harness.source.latest()
        for n in range(4):
            _put(harness, n, 1)
            harness.rotate()
        whole = read_log(harness.source, start, 1)
        for marker in whole.markers:
            harness.source.release(marker.read_from)
            rest = read_log(harness.source, marker)
            assert rest.ids() == whole.ids()[len(whole.ids()) - len(rest.ids()) :]
            assert harness.source.status().oldest <= marker.order
        harness.restart()
        assert not read_log(harness.source, whole.markers[-1]).updates

    # --- shards -------------------------------------------------------------------------------------------------------

    def test_by_table(self, make_harness: MakeHarness) -> None:
        harness = make_harness(Sharding("table"))
        start = harness.source.latest()
        _mixed(harness)
        read = read_log(harness.source, start, 100)
        read.check_ends()
        shards = {harness.shard(harness.table(name)) for name in "ab"}
        assert {u.shard for u in read.updates} == shards
        assert all(u.shard == harness.shard(u.table) for u in read.updates)
        assert harness.source.shards() >= shards

    def test_by_hash(self, make_harness: MakeHarness) -> None:
        harness = make_harness(Sharding("hash", 5))
        start = harness.source.latest()
        committed = _mixed(harness)
        read = read_log(harness.source, start, 100)
        read.check_ends()
        assert len(read.updates) == len(committed)
        for update in read.updates:
            key = update.key[0]
            assert isinstance(key, bytes)
            assert update.shard == shard_of_hash("log", key, 5)
        assert harness.source.shards() == {f"log.{k}of5" for k in range(5)}

    # --- times --------------------------------------------------------------------------------------------------------

    def test_a_time_means_the_last_place_by_which_all_was_committed(self, harness: Harness) -> None:
        start = harness.source.latest()
        reader = harness.source.open(start)
        read = Read(last_end=start.order)
        times: list[int] = []
        while not times or times[-1] - times[0] < 2_600_000:
            _put(harness, len(times), 1)
            if len(times) % 5 == 4:
                harness.rotate()
            read_until(reader, harness.source.latest().order, into=read)
            between = reader.read(1 << 20, 0.1)  # reads no update, only lets time pass
            if between is not None:
                read.add(between)
            times = [u.committed_at_us for u in read.updates]
        reader.close()
        # A log's files may state their times in whole seconds, so the last time before each file's end is tried.
        before_files = [at for at in times[3:-1:5] if at > times[0] + 1_100_000]
        for at in (times[0] + 1_200_000, times[0] + 2_400_000, *before_files):
            rest = read_log(harness.source, harness.source.locate_time(at)).ids()
            begins = len(times) - len(rest)
            assert read.ids()[begins:] == rest
            assert all(time_us <= at for time_us in times[:begins]), "nothing that was committed later is passed over"
            assert times[begins] > at - 2_100_000, "and little that was committed before is repeated"
        assert read_log(harness.source, harness.source.locate_time(times[-1] + 10_000_000)).ids() == []

    def test_a_time_before_the_log_says_where_that_begins(self, harness: Harness) -> None:
        _put(harness, 0, 5)
        harness.purge()
        with pytest.raises(PositionPurged, match=r"the log begins at \d+/\d+/\d+.* about 20\d\d-") as caught:
            harness.source.locate_time(1_000_000_000_000_000)
        assert "earliest" in str(caught.value.hint)
