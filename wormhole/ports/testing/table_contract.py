"""The contract of :mod:`wormhole.ports.table_source` as tests that run over any source of existing rows.

A test module of a source defines a :class:`TableHarness` of it, a fixture ``new_harness`` and a subclass of
:class:`TableSourceContract` (docs/write-a-source.md). The expected rows are those that result from the log's updates.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count, pairwise, product
from typing import cast

import pytest

from wormhole.model.errors import SourceUnavailable, UnreadableTable, WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.table_source import Chunk, ChunkLimits, TableSource
from wormhole.ports.testing.contract import Harness, MakeHarness
from wormhole.ports.testing.images import LogImages
from wormhole.ports.testing.reading import LIMIT_S
from wormhole.wire.rows import decode_key, encode_key

__all__ = ["TableHarness", "TableSourceContract"]

_ALL = ChunkLimits(rows=1_000_000, bytes=1 << 30, seconds=60.0)
_LIMITS = (
    *(_ALL, replace(_ALL, rows=1), replace(_ALL, rows=3), replace(_ALL, rows=1_000)),
    *(replace(_ALL, bytes=1), replace(_ALL, bytes=90), replace(_ALL, bytes=300)),
)
_VALUES = (b"", b"v", bytes(range(256)), "ä€😀".encode(), b"x" * 100_000)
_ROWS = 20
_Read = Callable[[Datamarker], Chunk]


class TableHarness(Harness):
    """A harness whose source's tables can be read; ``a`` and ``b`` are empty in the beginning."""

    tables: TableSource

    @abstractmethod
    def reopen_tables(self) -> None:
        """Close ``tables`` and open a new one."""

    @abstractmethod
    def drop(self, name: str) -> None:
        """Drop a table."""

    def ahead(self, marker: Datamarker) -> Datamarker:
        """The marker with a ``delivered`` that is ahead of every transaction in the log."""
        return replace(marker, delivered=str(int(marker.delivered) + 1_000))


@contextmanager
def _images(harness: TableHarness) -> Iterator[LogImages]:
    images = LogImages(harness.source, harness.source.latest())
    try:
        yield images
    finally:
        images.close()


@contextmanager
def _writing(commit: Callable[[], None]) -> Iterator[None]:
    """Commit repeatedly in another thread during the block, at least once before it."""
    began, stop = threading.Event(), threading.Event()

    def write() -> None:
        while not stop.is_set():
            commit()
            began.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert began.wait(LIMIT_S)
        yield
    finally:
        stop.set()
        writer.join()


def _check_snapshot(tables: TableHarness, images: LogImages, commit: Callable[[int], None], read: _Read) -> None:
    """Check that the rows which ``read`` returns during writes are the table at one place between ``not_before`` and
    ``high``.
    """
    name, numbers = tables.table("a"), count()
    commit(next(numbers))
    images.read_on()
    for _ in range(6):
        with _writing(lambda: commit(next(numbers))):
            images.step()
            chunk = read(images.marker)
        shown = images.rows(name) == chunk.rows
        while not tables.tables.reached(chunk.high, images.marker):
            images.step()
            shown = shown or images.rows(name) == chunk.rows
        assert shown, "the rows are at no place between not_before and high as the log has them"
        images.read_on()


def _fill(harness: TableHarness, rows: int = _ROWS) -> None:
    """Commit rows of several sizes in ``a``, change and delete some of them, and commit three rows in ``b``."""
    harness.commit([("put", "a", b"%04d" % n, b"v" * n) for n in range(rows)])
    harness.commit([("put", "a", b"%04d" % n, b"changed") for n in range(0, rows, 5)])
    harness.commit([("delete", "a", b"%04d" % n) for n in range(3, rows, 7)])
    harness.commit([("put", "b", key, b"") for key in (b"x", b"", b"\x00\xff")])


def _walk(harness: TableHarness, table: str, limits: ChunkLimits, not_before: Datamarker) -> list[Chunk]:
    """All chunks of a table."""
    chunks: list[Chunk] = []
    after = None
    while not chunks or not chunks[-1].done:
        chunks.append(harness.tables.chunk(table, after, None, limits, not_before))
        if not chunks[-1].done:
            assert chunks[-1].last is not None, "a chunk that is not done has no last key to go on after"
            assert chunks[-1].last != after, "a chunk that is not done looked at no key"
            after = chunks[-1].last
    return chunks


def _in_order(harness: TableHarness, table: str, not_before: Datamarker) -> list[bytes]:
    return list(harness.tables.chunk(table, None, None, _ALL, not_before).rows)


class TableSourceContract:
    """The tests. Each gets a fresh harness, which has to be a :class:`TableHarness`."""

    @pytest.fixture
    def tables(self, harness: Harness) -> TableHarness:
        """The harness."""
        return cast("TableHarness", harness)

    # --- what a chunk holds -------------------------------------------------------------------------------------------

    def test_chunks_cover_every_row_once_in_order(self, tables: TableHarness) -> None:
        with _images(tables) as images:
            _fill(tables)
            not_before = images.read_on()
            for limits, name in product(_LIMITS, (tables.table("a"), tables.table("b"))):
                chunks = _walk(tables, name, limits, not_before)
                keys = [key for chunk in chunks for key in chunk.rows]
                assert keys == _in_order(tables, name, not_before), f"{limits} change the rows or their order"
                rows = {key: row for chunk in chunks for key, row in chunk.rows.items()}
                assert rows == images.rows(name), "the rows are not those that the log's updates make"
                for chunk in chunks:
                    sizes = [len(row) for row in chunk.rows.values()]
                    assert len(sizes) <= limits.rows
                    assert sum(sizes[:-1]) < limits.bytes, f"more than one row is over {limits}"
                    assert not sizes or chunk.last is not None
                rest = tables.tables.chunk(name, keys[-1], None, limits, not_before)
                assert (rest.rows, rest.done) == ({}, True), "rows follow the last one"

    def test_a_portable_order_is_that_of_the_bytes(self, tables: TableHarness) -> None:
        with _images(tables) as images:
            tables.commit(
                [("put", "a", key, b"") for key in (b"b", b"a\xff", b"a", b"\x00", b"", b"a\x00", b"B", b"\xff")]
            )
            keys = _in_order(tables, tables.table("a"), images.read_on())
        (table,) = tables.tables.tables(lambda name: name == tables.table("a"))
        if table.portable:
            assert keys == sorted(keys, key=lambda key: cast("bytes", decode_key(key)[0]))

    def test_after_and_until_are_exact(self, tables: TableHarness) -> None:
        with _images(tables) as images:
            _fill(tables, 7)
            not_before = images.read_on()
            name = tables.table("a")
            keys = _in_order(tables, name, not_before)
            tables.commit([("delete", "a", cast("bytes", decode_key(keys[4])[0]))])
            not_before = images.read_on()
            bounds = [None, *range(len(keys))]
            for after in bounds:
                for until in bounds:
                    chunk = tables.tables.chunk(
                        name,
                        None if after is None else keys[after],
                        None if until is None else keys[until],
                        _ALL,
                        not_before,
                    )
                    first, end = 0 if after is None else after + 1, len(keys) if until is None else until + 1
                    wanted = [keys[i] for i in range(first, end) if i != 4]
                    assert list(chunk.rows) == wanted, f"rows above {after} up to {until} of {len(keys)}; 4 is deleted"
                    assert chunk.done

    def test_an_empty_table(self, tables: TableHarness) -> None:
        tables.commit([("put", "a", b"k", b"v")])
        tables.commit([("delete", "a", b"k")])
        chunk = tables.tables.chunk(tables.table("a"), None, None, _ALL, tables.source.latest())
        assert (chunk.rows, chunk.done) == ({}, True)

    def test_rows_by_key(self, tables: TableHarness) -> None:
        with _images(tables) as images:
            _fill(tables)
            not_before = images.read_on()
        name = tables.table("a")
        there = images.rows(name)
        keys = list(there)
        missing = [encode_key((key,)) for key in (b"0003", b"9999", b"")]
        chunk = tables.tables.rows(name, [keys[9], missing[0], keys[2], missing[1], keys[2], missing[2]], not_before)
        assert chunk.rows == {key: there[key] for key in (keys[2], keys[9])}
        assert tables.tables.rows(name, missing, not_before).rows == {}
        assert tables.tables.rows(name, [], not_before).rows == {}
        assert tables.tables.rows(name, keys, not_before).rows == there

    def test_what_is_no_key_of_the_table_cannot_be_asked_for(self, tables: TableHarness) -> None:
        with _images(tables) as images:
            _fill(tables)
            not_before = images.read_on()
        name = tables.table("a")
        for key in (*images.rows(name), encode_key((b"9999",))):
            assert tables.tables.can_ask(name, key)
        for key in (b"\xff", encode_key(()), encode_key((b"1", b"2"))):
            assert not tables.tables.can_ask(name, key)
        assert not tables.tables.rows(name, [encode_key((b"9999",))], not_before).unclear

    def test_bytes_and_schema_are_those_of_the_log(self, tables: TableHarness) -> None:
        name = tables.table("a")
        with _images(tables) as images:
            for value in _VALUES:
                tables.commit([("put", "a", b"k", value)])
                tables.commit([("put", "a", bytes(range(256))[:64], value)])
                not_before = images.read_on()
                for chunk in (
                    tables.tables.chunk(name, None, None, _ALL, not_before),
                    tables.tables.rows(name, list(images.rows(name)), not_before),
                ):
                    assert chunk.rows == images.rows(name)
                    assert {image.schema for image in images.tables[name].values()} == {chunk.schema}

    def test_keys_divide_a_table_into_ranges(self, tables: TableHarness) -> None:
        with _images(tables) as images:
            _fill(tables)
            not_before = images.read_on()
        name = tables.table("a")
        keys = _in_order(tables, name, not_before)
        for rows in (1, 3, 10, 1_000):
            found: list[bytes] = []
            while (key := tables.tables.skip(name, found[-1] if found else None, rows)) is not None:
                found.append(key)
            assert found == keys[rows - 1 :: rows], f"every {rows} rows: an idle table of a few is counted at once"
            ranges = [
                list(tables.tables.chunk(name, after, until, _ALL, not_before).rows)
                for after, until in pairwise([None, *found, None])
            ]
            assert [key for range_ in ranges for key in range_] == keys
        with pytest.raises(UnreadableTable):
            tables.tables.skip(tables.table("nothing"), None, 3)

    # --- where a chunk lies in the log --------------------------------------------------------------------------------

    def test_a_chunk_is_one_snapshot_between_not_before_and_high(self, tables: TableHarness) -> None:
        def commit(n: int) -> None:
            value = b"%d" % n
            tables.commit([("put", "a", key, value) for key in (b"0000", b"%04d" % (n * 7 % _ROWS), b"9999")])
            if n % 5 == 0:
                tables.commit([("delete", "a", b"%04d" % (n * 3 % _ROWS))])

        with _images(tables) as images:
            _check_snapshot(
                tables,
                images,
                commit,
                lambda not_before: tables.tables.chunk(tables.table("a"), None, None, _ALL, not_before),
            )

    def test_rows_by_key_are_one_snapshot_between_not_before_and_high(self, tables: TableHarness) -> None:
        def commit(n: int) -> None:
            tables.commit([("put", "a", key, b"%d" % n) for key in (b"k", b"l")])

        keys = [encode_key((key,)) for key in (b"k", b"l")]
        with _images(tables) as images:
            _check_snapshot(
                tables, images, commit, lambda not_before: tables.tables.rows(tables.table("a"), keys, not_before)
            )

    def test_high_is_reached_by_the_end_of_an_idle_log_and_by_nothing_before_what_is_shown(
        self, tables: TableHarness
    ) -> None:
        with _images(tables) as images:
            tables.commit([("put", "a", b"k", b"1")])
            before = images.read_on()
            tables.commit([("put", "a", b"k", b"2")])
            shown = images.read_on()
            for chunk in (
                tables.tables.chunk(tables.table("a"), None, None, _ALL, shown),
                tables.tables.rows(tables.table("a"), [encode_key((b"k",))], shown),
            ):
                end = images.read_on()  # a server writes into its log by itself, now and then
                assert tables.tables.reached(chunk.high, end), "a backfill of an idle log would wait for ever"
                assert not tables.tables.reached(chunk.high, before)
                assert chunk.rows == images.rows(tables.table("a"))

    def test_what_is_not_shown_yet_is_asked_for_again(self, tables: TableHarness) -> None:
        tables.commit([("put", "a", b"k", b"1")])
        ahead = tables.ahead(tables.source.latest())
        with pytest.raises(SourceUnavailable) as error:
            tables.tables.chunk(tables.table("a"), None, None, _ALL, ahead)
        assert error.value.hint

    # --- tables -------------------------------------------------------------------------------------------------------

    def test_the_tables_by_name(self, tables: TableHarness) -> None:
        _fill(tables)
        names = [tables.table("a"), tables.table("b")]
        asked: list[str] = []
        listed = tables.tables.tables(lambda name: asked.append(name) or name in names)  # type: ignore[func-returns-value]
        assert [table.name for table in listed] == names
        assert set(asked) >= set(names)
        assert not any(table.refused for table in listed)
        assert all(table.rows is None or table.rows >= 0 for table in listed)
        again = tables.tables.tables(lambda name: name in names)
        assert [table.fingerprint for table in again] == [table.fingerprint for table in listed]
        for table in listed:
            schema = tables.tables.chunk(table.name, None, None, _ALL, tables.source.latest()).schema
            assert table.columns in ((), tuple(column.name for column in schema.columns))
        assert [table.name for table in tables.tables.tables(lambda name: name == names[1])] == names[1:]
        assert not tables.tables.tables(lambda _: False)

    def test_a_table_that_is_not_there_is_refused(self, tables: TableHarness) -> None:
        _fill(tables)
        name = tables.table("nothing")
        not_before = tables.source.latest()
        with pytest.raises(UnreadableTable, match="nothing") as error:
            tables.tables.chunk(name, None, None, _ALL, not_before)
        assert error.value.hint
        with pytest.raises(UnreadableTable, match="nothing"):
            tables.tables.rows(name, [encode_key((b"k",))], not_before)
        assert not tables.tables.tables(lambda listed: listed == name)

    def test_a_table_that_is_dropped_in_the_middle_is_refused_and_no_other(self, tables: TableHarness) -> None:
        with _images(tables) as images:
            _fill(tables)
            not_before = images.read_on()
            one = replace(_ALL, rows=1)
            chunk = tables.tables.chunk(tables.table("a"), None, None, one, not_before)
            tables.drop("a")
            with pytest.raises(UnreadableTable) as error:
                tables.tables.chunk(tables.table("a"), chunk.last, None, one, not_before)
            assert tables.table("a") in error.value.message
            assert error.value.hint
            other = tables.tables.chunk(tables.table("b"), None, None, _ALL, not_before)
            assert other.rows == images.rows(tables.table("b"))
            assert [table.name for table in tables.tables.tables(lambda name: name in images.tables)] == [
                tables.table("b")
            ]

    # --- calls --------------------------------------------------------------------------------------------------------

    def test_calls_do_not_depend_on_each_other(self, tables: TableHarness) -> None:
        with _images(tables) as images:
            _fill(tables)
            not_before = images.read_on()
        first, second = tables.table("a"), tables.table("b")
        limits = replace(_ALL, rows=3)
        began = tables.tables.chunk(first, None, None, limits, not_before)
        expected = tables.tables.chunk(first, began.last, None, limits, not_before)
        tables.tables.chunk(second, None, None, limits, not_before)
        tables.tables.rows(first, list(images.rows(first))[:2], not_before)
        assert tables.tables.chunk(first, None, None, limits, not_before).rows == began.rows
        assert tables.tables.chunk(first, began.last, None, limits, not_before).rows == expected.rows
        tables.reopen_tables()
        assert tables.tables.chunk(first, began.last, None, limits, not_before).rows == expected.rows

    def test_a_change_between_two_chunks_is_shown_by_the_second(self, tables: TableHarness) -> None:
        with _images(tables) as images:
            _fill(tables)
            first = tables.tables.chunk(tables.table("a"), None, None, replace(_ALL, rows=5), images.read_on())
            tables.commit([("put", "a", b"9999", b"new"), ("delete", "a", b"0015")])
            rest = tables.tables.chunk(tables.table("a"), first.last, None, _ALL, images.read_on())
            assert {**first.rows, **rest.rows} == images.rows(tables.table("a"))

    def test_an_interrupted_call_and_the_next(self, tables: TableHarness) -> None:
        with _images(tables) as images:
            _fill(tables)
            not_before = images.read_on()
        errors: list[WormholeError] = []

        def read() -> None:
            try:
                while True:
                    tables.tables.chunk(tables.table("a"), None, None, _ALL, not_before)
            except WormholeError as error:
                errors.append(error)

        reader = threading.Thread(target=read)
        reader.start()
        while reader.is_alive():
            tables.tables.interrupt()
        reader.join()
        assert [type(error) for error in errors] == [SourceUnavailable]
        chunk = tables.tables.chunk(tables.table("a"), None, None, _ALL, not_before)
        assert chunk.rows == images.rows(tables.table("a"))

    def test_closing_twice(self, tables: TableHarness) -> None:
        _fill(tables)
        tables.tables.tables(lambda _: True)
        tables.tables.close()
        tables.tables.close()
        tables.reopen_tables()
        assert tables.tables.tables(lambda name: name == tables.table("a"))
        tables.reopen_tables()
        tables.tables.close()

    # --- shards -------------------------------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "sharding",
        [Sharding("log"), Sharding("database"), Sharding("table"), Sharding("hash", 5)],
        ids=lambda one: one.by,
    )
    def test_the_shard_of_a_row_is_that_of_its_updates(self, make_harness: MakeHarness, sharding: Sharding) -> None:
        tables = cast("TableHarness", make_harness(sharding))
        with _images(tables) as images:
            _fill(tables)
            images.read_on()
        for table, rows in images.tables.items():
            for key, image in rows.items():
                assert tables.tables.shard_of(table, key) == image.shard
