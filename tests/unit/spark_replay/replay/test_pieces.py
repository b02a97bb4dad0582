from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from spark_replay.archive.compact import Group, merge
from spark_replay.archive.manifest import FileEntry, KnownLoss
from spark_replay.archive.reader import DataFile
from spark_replay.archive.store import ArchiveStore
from spark_replay.replay import pieces as pieces_module
from spark_replay.replay.pieces import Formats, Pass, Selector, log_pieces
from tests.support.archives import (
    KEYS,
    gone,
    manifest_of,
    marker_at,
    pushed_ids,
    put,
    segments,
    tx,
    write_archive,
    write_file,
)
from wormhole.formats import FormatSpec, ValueFormats
from wormhole.model.errors import ArchiveError, ArchiveUnavailable, ReplayError
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment

ALL = Selector("", "", ValueFormats())


@pytest.fixture
def store(tmp_path: Path) -> ArchiveStore:
    first = [
        tx(put(b"k1", b"v1"), put(b"k2", b"v2")),
        tx(gone(b"k1")),
        tx(*(put(b"k%d" % n, b"w") for n in range(5)), pieces=2),
    ]
    return write_archive(tmp_path / "archive", {"a": [first, [tx(put(b"k9", b"v9"))]]})


def test_every_update_behind_a_datamarker_comes_in_order(store: ArchiveStore) -> None:
    everything = pushed_ids(log_pieces(store, "a", marker_at(0), marker_at(4), ALL))
    assert everything == [
        "source-a:1:0", "source-a:1:1", "source-a:2:0", *(f"source-a:3:{n}" for n in range(5)), "source-a:4:0"
    ]  # fmt: skip
    for number, expected in ((1, everything[2:]), (2, everything[3:]), (3, everything[8:]), (4, [])):
        assert pushed_ids(log_pieces(store, "a", marker_at(number), marker_at(4), ALL)) == expected
    assert pushed_ids(log_pieces(store, "a", marker_at(1), marker_at(2), ALL)) == ["source-a:2:0"]


def test_only_datamarkers_of_the_publisher_are_offered(store: ArchiveStore) -> None:
    offers = [piece.offer.marker for piece in log_pieces(store, "a", marker_at(0), marker_at(4), ALL) if piece.offer]
    assert set(offers) <= {marker_at(number) for number in range(1, 5)}
    assert offers == sorted(offers, key=lambda marker: marker.order)


def test_a_range_that_is_not_there_is_refused(store: ArchiveStore, tmp_path: Path) -> None:
    later = write_archive(tmp_path / "later", {"a": [[tx(put(b"k", b"v"))]]}, whole=False)
    for archive, shard, begin, end in ((store, "a", 0, 5), (store, "b", 0, 1), (later, "a", -1, 1)):
        with pytest.raises(ReplayError, match="is not held"):
            list(log_pieces(archive, shard, marker_at(begin) if begin >= 0 else before(), marker_at(end), ALL))


def before() -> Datamarker:
    return replace(marker_at(0), order=replace(marker_at(0).order, file=0))


@pytest.fixture
def four(tmp_path: Path) -> ArchiveStore:
    return write_archive(tmp_path / "four", {"a": [[tx(put(b"k", b"%d" % n)), tx(put(b"l", b"v"))] for n in range(4)]})


def unlink(store: ArchiveStore, *entries: FileEntry) -> None:
    for entry in entries:
        store.delete_data("a", entry.name)


@pytest.mark.parametrize("read", range(7))
def test_files_that_were_merged_meanwhile_are_read_where_they_went(four: ArchiveStore, read: int) -> None:
    everything = [f"source-a:{number}:0" for number in range(1, 9)]
    pieces = log_pieces(four, "a", marker_at(0), marker_at(8), ALL)
    found = list(itertools.islice(pieces, read))  # two for each file: its rows, and the datamarker at its end
    files = manifest_of(four).files
    assert merge(four, Group("a", files[:3])).state == "merged"
    unlink(four, *files[:3])
    found += pieces
    assert pushed_ids(iter(found)) == everything, "each once, in order"
    offers = [piece.offer.marker for piece in found if piece.offer]
    assert offers == sorted(set(offers), key=lambda marker: marker.order)
    assert (offers[: read // 2], offers[-1]) == ([entry.end for entry in files[: read // 2]], marker_at(8))


def test_what_retention_took_meanwhile_is_an_error_with_the_range(four: ArchiveStore) -> None:
    pieces = log_pieces(four, "a", marker_at(0), marker_at(8), ALL)
    assert len(pushed_ids(itertools.islice(pieces, 1))) == 2
    files = manifest_of(four).files
    four.change("a", lambda one: one.without_first(3))  # type: ignore[union-attr]
    unlink(four, *files[:3])
    with pytest.raises(
        ReplayError, match="1/1/200 to 1/1/800 is not held: the archive of a holds 1/1/600 to"
    ) as caught:
        list(pieces)
    assert "accept-loss" in str(caught.value.hint)


def test_a_file_that_is_named_and_not_there_is_an_error_with_its_range(four: ArchiveStore) -> None:
    unlink(four, manifest_of(four).files[1])
    with pytest.raises(ArchiveError, match="is not there, and the newest manifest names it") as caught:
        list(log_pieces(four, "a", marker_at(0), marker_at(8), ALL))
    assert (caught.value.shard, caught.value.position) == ("a", "1/1/200 to 1/1/400")
    assert "verify" in str(caught.value.hint)


def test_a_file_that_goes_while_it_is_read_is_tried_again(four: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> Iterator[Segment]:
        raise ArchiveError("no such key") from FileNotFoundError("no such key")

    monkeypatch.setattr(DataFile, "segments", gone)
    with pytest.raises(ArchiveUnavailable, match="went while it was read"):
        list(log_pieces(four, "a", marker_at(0), marker_at(8), ALL))


def test_what_the_archive_lacks_is_reported_where_it_lacks_it(store: ArchiveStore) -> None:
    store.change("a", lambda one: one.gap_accepted(KnownLoss(marker_at(7), "it was gone"), 1))  # type: ignore[union-attr]
    pieces = list(log_pieces(store, "a", marker_at(0), marker_at(7), ALL))
    assert [(piece.gap[0].message, piece.gap[1]) for piece in pieces if piece.gap] == [
        ("the archive lacks it too: it was gone", marker_at(7))
    ]
    assert pieces[-1].gap is not None


def test_of_several_losses_in_a_row_each_is_reported(store: ArchiveStore) -> None:
    for number in (5, 7):
        store.change("a", lambda one: one.gap_accepted(KnownLoss(marker_at(number), f"lost {number}"), 1))  # type: ignore[union-attr]  # noqa: B023
    write_file(store, "a", segments("a", [tx(put(b"k", b"v"))], 8), marker_at(8))
    told = [
        (piece.gap[1], piece.body is None)
        for piece in log_pieces(store, "a", marker_at(0), marker_at(8), ALL)
        if piece.gap
    ]
    assert told == [(marker_at(5), True), (marker_at(7), False)]


def test_both_filters_leave_out_and_only_the_applications_marks(store: ArchiveStore) -> None:
    def chosen(application: str, where: str, formats: ValueFormats | None = None) -> list[str]:
        selector = Selector(application, where, formats or ValueFormats())
        return pushed_ids(log_pieces(store, "a", marker_at(0), marker_at(4), selector))

    assert chosen("op in ('delete')", "") == ["source-a:2:0"]
    assert chosen("", "key in ('k9')") == ["source-a:4:0"]
    assert chosen("op in ('upsert')", "key in ('k1')") == ["source-a:1:0", "source-a:3:1"]


def test_a_value_that_is_not_of_its_format_stops_where_the_application_says_so(store: ArchiveStore) -> None:
    formats = Formats(FormatSpec("json"), {}).open()
    assert pushed_ids(log_pieces(store, "a", marker_at(0), marker_at(4), Selector("n == 1", "", formats)))
    with pytest.raises(ReplayError, match="source-a:1:0"):
        list(log_pieces(store, "a", marker_at(0), marker_at(4), Selector("n == 1", "", formats, halts=True)))


def a_pass(store: ArchiveStore) -> Pass:
    def batches() -> Iterator[pa.RecordBatch]:
        manifest = manifest_of(store)
        for entry in manifest.files:
            with DataFile(store.open_data("a", entry.name), entry.name) as file:
                yield from file.batches()

    return Pass(batches(), "a", lambda id_: KEYS, marker_at(0))


def test_a_pass_never_moves_the_datamarker_and_can_be_had_again(store: ArchiveStore) -> None:
    found = a_pass(store)
    pieces = list(found.pieces(b"", ALL))
    offers = [piece.offer for piece in pieces if piece.offer]
    assert {offer.marker.order for offer in offers} == {marker_at(0).order}
    assert len({offer.marker for offer in offers}) == len(offers), "acknowledgements can be told apart"
    assert all(offer.store is None for offer in offers)
    assert len(pushed_ids(iter(pieces))) == 9
    assert len(pushed_ids(found.pieces(b"", ALL))) == 9, "nothing was stored: all of it again"
    found.stored(offers[0].progress)
    assert pushed_ids(found.pieces(offers[0].progress, ALL)) == ["source-a:4:0"]


def test_a_pass_whose_rows_could_not_be_computed_computes_them_anew(store: ArchiveStore) -> None:
    """What raised would else look like what came to its end, and the rest would never be pushed."""
    whole = list(a_pass(store)._batches)
    fails = [True]

    class Batches:
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            yield whole[0]
            if fails.pop() if fails else False:
                raise ArchiveUnavailable("the storage is away")
            yield whole[1]

    found = Pass(Batches(), "a", lambda id_: KEYS, marker_at(0))
    pieces = found.pieces(b"", ALL)
    first = next(pieces)
    assert first.offer is not None
    with pytest.raises(ArchiveUnavailable):
        next(pieces)
    assert pushed_ids(found.pieces(first.offer.progress, ALL)) == ["source-a:4:0"]


def test_rows_are_computed_as_often_as_they_are_needed(store: ArchiveStore) -> None:
    """An application told a place of its own, so the rows before were passed over; then it lost its state. To read and
    fold them takes as long as a pass, and twice its memory."""
    whole, computed = list(a_pass(store)._batches), 0

    class Batches:
        def __iter__(self) -> Iterator[pa.RecordBatch]:
            nonlocal computed
            computed += 1
            return iter(whole)

    found = Pass(Batches(), "a", lambda id_: KEYS, marker_at(0))
    has = whole[0]["place"][whole[0].num_rows - 1].as_py()
    assert pushed_ids(found.pieces(has, ALL)) == ["source-a:4:0"]
    assert len(pushed_ids(found.pieces(b"", ALL))) == 9
    assert computed == 2


def test_rows_that_no_filter_wants_do_not_pile_up(store: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    none = Selector("key in ('no')", "", ValueFormats())
    assert [piece.offer.due for piece in a_pass(store).pieces(b"", none) if piece.offer] == [False, False]
    monkeypatch.setattr(pieces_module, "_DUE_BYTES", 1)
    assert [piece.offer.due for piece in a_pass(store).pieces(b"", none) if piece.offer] == [True, True]


def test_rows_that_cannot_be_had_again_end_the_pass(store: ArchiveStore) -> None:
    found = a_pass(store)
    has = next(iter(a_pass(store)._batches))["place"][-1].as_py()
    assert pushed_ids(found.pieces(has, ALL)) == ["source-a:4:0"]
    with pytest.raises(ReplayError, match="cannot be had again"):
        list(found.pieces(b"", ALL))
