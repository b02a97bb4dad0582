"""How a flow's replay is planned, cut into pieces and estimated."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path

import grpc
import pyarrow as pa
import pytest

from spark_replay.archive.compact import Group, merge
from spark_replay.archive.manifest import FileEntry, KnownLoss, Manifest
from spark_replay.archive.ranges import Asked
from spark_replay.archive.reader import DataFile
from spark_replay.archive.store import ArchiveStore
from spark_replay.frames import ShardFiles
from spark_replay.replay import pieces as pieces_module
from spark_replay.replay.estimate import Estimate, Sketch, _hashes, estimate, is_small
from spark_replay.replay.flow_plans import FlowPlan, check_free, filters, no_subscriber_takes, plan, resumed, where_of
from spark_replay.replay.pieces import Formats, Pass, Selector, log_pieces
from spark_replay.tables.about import ABOUT, SnapshotAbout, SnapshotShard, SnapshotTable, about_to_json
from spark_replay.tables.folder import Folder
from tests.support.archives import (
    CUSTOMERS,
    KEYS,
    gone,
    manifest_of,
    marker_at,
    pushed_ids,
    put,
    row,
    segments,
    tx,
    write_archive,
    write_file,
)
from tests.support.replay_plans import archived, flow, seen, setting, wish
from tests.support.scripted_replay import Refused, ScriptedReplay, replay_publisher
from tests.unit.spark_replay.replay.test_latest import KEYLESS, OLD, Change
from tests.unit.spark_replay.replay.test_shuffled import ALSO, as_in_files
from wormhole.config import FAILOVER
from wormhole.formats import FormatSpec, ValueFormats
from wormhole.model.errors import ArchiveError, ArchiveUnavailable, FilterError, ReplayError, UsageError
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import admin_pb2

# --- flow plans ---


def test_the_flows_that_are_meant_each_with_its_range(tmp_path: Path) -> None:
    store = archived(tmp_path)
    both = seen(flow("b", marker_at(0)), flow("a", marker_at(1)))
    plans = plan(wish(), setting(store), [both])
    assert [(one.flow, one.range.begin, one.range.until) for one in plans] == [
        ("cache/a", marker_at(1), marker_at(3)),
        ("cache/b", marker_at(0), plans[1].range.until),
    ], "the largest first"
    assert [one.flow for one in plan(wish(shards=("b*",)), setting(store), [both])] == ["cache/b"]
    assert plans[0].chosen.begin == marker_at(1)


def test_what_cannot_be_is_refused_before_anything_is_held(tmp_path: Path) -> None:
    store = archived(tmp_path)
    a = flow("a", marker_at(1))
    for looked, asked, kind, text in (
        ([seen()], wish(), ReplayError, "no publisher has a flow"),
        ([seen(a)], wish(shards=("x",)), UsageError, "no shard 'x'"),
        ([seen(a, copy="other")], wish(), ReplayError, "made of copy main"),
        ([seen(flow("c", marker_at(1)))], wish(), ReplayError, "holds nothing of c; it has a, b"),
        ([seen(flow("a", marker_at(9)), flow("b", marker_at(9)))], wish(), ReplayError, "a: .*; b: "),
    ):
        with pytest.raises(kind, match=text) as caught:
            plan(asked, setting(store), looked)
        assert caught.value.hint


def test_an_archive_of_a_failover_is_replayed_whichever_copy_serves(tmp_path: Path) -> None:
    begun = write_archive(tmp_path / "begun", {"a": [[tx(put(b"k", b"v"))]]}, copy=FAILOVER)
    for store in (archived(tmp_path), begun):
        found = setting(store, failover=("main", "west"))
        for copy in ("main", "west"):
            (one,) = plan(wish(), found, [seen(flow("a", marker_at(0)), copy=copy)])
            assert one.flow == "cache/a"
        with pytest.raises(ReplayError, match="the flow follows other") as caught:
            plan(wish(), found, [seen(flow("a", marker_at(0)), copy="other")])
        asked = "leave `copy` out" if store.copy == FAILOVER else 'follow `copy = "main"`'
        assert asked in str(caught.value.hint)


def test_each_publisher_has_to_reach_somebody_and_a_plan_needs_nobody(tmp_path: Path) -> None:
    store = archived(tmp_path)
    there, away = seen(flow("a", marker_at(1))), seen(flow("b", marker_at(0)), connected=False)
    assert no_subscriber_takes("cache", plan(wish(), setting(store), [there])) is None
    error = no_subscriber_takes("cache", plan(wish(), setting(store), [there, away]))
    assert error is not None
    assert (error.flow, "no subscriber of cache is connected (s1: gone)" in error.message) == ("cache/b", True)
    assert "wormholectl subscribers" in str(error.hint)


def test_a_flow_of_another_replay_is_refused_and_what_its_publisher_says_against_it_goes_through() -> None:
    with replay_publisher(ScriptedReplay(marker_at(0))) as script:
        plans = [type("Plan", (), {"publisher": seen(reach=script.reach), "flow": "cache/a"})()]
        check_free(wish(), plans)
        script.refuses["begin"] = [Refused(grpc.StatusCode.FAILED_PRECONDITION, "parked updates", "retry them")]
        with pytest.raises(ReplayError, match="parked"):
            check_free(wish(), plans)
        other = admin_pb2.ReplayReply(
            flow=flow("a", marker_at(0)), replay=admin_pb2.ReplayStatus(replay="other", who="her", lease_left_s=9)
        )
        script.answer = lambda request: other  # type: ignore[method-assign]
        with pytest.raises(ReplayError, match="replay other of her has it") as caught:
            check_free(wish(), plans)
        assert "--resume other" in str(caught.value.hint)


def test_a_replay_is_taken_up_as_it_was_begun(tmp_path: Path) -> None:
    store = archived(tmp_path)
    status = admin_pb2.ReplayStatus(
        replay="r",
        mode=admin_pb2.LATEST,
        begin=marker_to_message(marker_at(0)),
        until=marker_to_message(marker_at(2)),
        where="op == 'upsert'",
        started_s=7.5,
    )
    looked = [seen(flow("a", marker_at(1), replay=status), flow("b", marker_at(0)))]
    (one,), problems = resumed(wish(), setting(store), looked)
    assert problems == []
    assert (one.mode, one.range.begin, one.range.until, one.begun) == ("latest", marker_at(0), marker_at(2), True)
    assert one.started_s == 7.5
    assert where_of([one]) == "op == 'upsert'"
    with pytest.raises(UsageError, match="no flow is with a replay 'gone'"):
        resumed(wish(id="gone"), setting(store), looked)


def test_a_replay_from_where_the_archive_begins_is_taken_up_and_not_one_from_before(tmp_path: Path) -> None:
    store = archived(tmp_path)
    store.change("a", lambda one: one.without_first(1))  # type: ignore[union-attr]
    status = admin_pb2.ReplayStatus(
        replay="r", mode=admin_pb2.LATEST, until=marker_to_message(marker_at(3)), attempts=1
    )
    ((one,), _) = resumed(wish(), setting(store), [seen(flow("a", marker_at(2), replay=status))])
    assert (one.range.begin, one.range.until, one.first) == (marker_at(2), marker_at(3), None)
    with pytest.raises(ReplayError, match="does not reach back to 1/1/100"):
        resumed(wish(), setting(store), [seen(flow("a", marker_at(1), replay=status))])
    both = seen(flow("a", marker_at(1), replay=status), flow("b", marker_at(0), replay=status))
    (other,), (problem,) = resumed(wish(), setting(store), [both])
    assert (other.flow, problem.flow) == ("cache/b", "cache/a"), "what one flow lacks keeps no other back"


def test_an_archive_that_lacks_a_part_cannot_give_the_last_of_each_key(tmp_path: Path) -> None:
    store = archived(tmp_path)
    store.change("a", lambda one: one.gap_accepted(KnownLoss(marker_at(5), "gone"), 1))  # type: ignore[union-attr]
    (one,) = plan(wish(), setting(store), [seen(flow("a", marker_at(1)))])
    assert "lacks" in one.lacks


def test_filters_are_checked_first(tmp_path: Path) -> None:
    store = archived(tmp_path)
    found = filters(wish(where="key in ('k')"), setting(store, where="op == 'delete'"), ValueFormats())
    assert not found.application.matches_all
    assert found.where is not None
    with pytest.raises(FilterError):
        filters(wish(where="key ~~ 1"), setting(store), ValueFormats())


def snapshot_at(folder: Path, **places: Datamarker) -> str:
    shards = {shard: SnapshotShard("1/1/0", marker, shard) for shard, marker in places.items()}
    Folder(str(folder), ABOUT).finish(about_to_json(SnapshotAbout("orders", "main", shards, {}), ""))
    return str(folder)


def test_a_snapshot_s_rows_come_before_the_archive_behind_it(tmp_path: Path) -> None:
    store = archived(tmp_path)
    asked = wish(snapshot=snapshot_at(tmp_path / "s", a=marker_at(2)))
    one, other = plan(asked, setting(store), [seen(flow("a", marker_at(3)), flow("b", marker_at(0)))])
    assert (one.first, one.range.begin, one.range.until, one.range.rewinds) == (
        marker_at(0),
        marker_at(2),
        marker_at(3),
        True,
    )
    assert (other.first, other.range.begin) == (None, marker_at(0)), (
        "a shard that came later is replayed from its first row"
    )
    (new,) = plan(replace(asked, shards=("a",)), setting(store), [seen(flow("a", marker_at(0)))])
    assert (new.first, new.range.rewinds) == (marker_at(0), False)
    with pytest.raises(UsageError, match="before the beginning of the range"):
        plan(
            replace(asked, stop=Asked("1/1/100", place=marker_at(1).order)),
            setting(store),
            [seen(flow("a", marker_at(0)))],
        )


def test_a_snapshot_is_refused_for_tables_that_the_application_wants_and_that_are_not_complete(tmp_path: Path) -> None:
    store, shards = archived(tmp_path), {"a": SnapshotShard("1/1/0", marker_at(2), "a")}
    tables = {"default": SnapshotTable("tables/default", 2), "orders": SnapshotTable("tables/orders", 5, 1)}
    about = SnapshotAbout("orders", "main", shards, tables, {"events": "it has no primary key"}, updates=())
    Folder(str(tmp_path / "s"), ABOUT).finish(about_to_json(about, ""))
    asked, looked = wish(snapshot=str(tmp_path / "s")), [seen(flow("a", marker_at(2)))]
    wants = setting(store, where="table in ('default')")
    (one,) = plan(asked, wants, looked)
    assert one.range.begin == marker_at(2)
    reasons = "events is left out: it has no primary key; 1 row of orders has values that the log does not hold"
    with pytest.raises(ReplayError, match=reasons) as caught:
        plan(asked, setting(store), looked)
    assert "default" not in caught.value.message


def test_a_snapshot_that_the_archive_does_not_go_on_from_is_refused(tmp_path: Path) -> None:
    store = archived(tmp_path)
    beyond = wish(snapshot=snapshot_at(tmp_path / "beyond", a=marker_at(9)))
    with pytest.raises(ReplayError, match="does not go on where the snapshot ends"):
        plan(beyond, setting(store), [seen(flow("a", marker_at(0)))])
    manifest = manifest_of(store)
    store.change("a", lambda _: expired(manifest))
    early, held = (wish(snapshot=snapshot_at(tmp_path / str(n), a=marker_at(n))) for n in (1, 2))
    with pytest.raises(ReplayError, match="does not go on where the snapshot ends"):
        plan(early, setting(store), [seen(flow("a", marker_at(0)))])
    (one,) = plan(held, setting(store), [seen(flow("a", marker_at(0)))])
    assert (one.first, one.range.begin) == (marker_at(0), marker_at(2)), "the snapshot has what retention let go"
    with pytest.raises(ReplayError, match="missing rows would go unnoticed") as caught:
        plan(held, setting(store), [seen(flow("a", marker_at(2)))])
    assert caught.value.hint


def expired(manifest: Manifest) -> Manifest:
    """Without its first file."""
    files = manifest.files[1:]
    return replace(manifest, version=manifest.version + 1, files=files, begin=files[0].begin, whole=False)


def test_a_replay_that_began_with_a_snapshot_is_taken_up(tmp_path: Path) -> None:
    store = archived(tmp_path)
    folder = snapshot_at(tmp_path / "s", a=marker_at(2))

    def taken_up(stands: int, attempts: int, snapshot: str = folder, begun: Datamarker | None = None) -> FlowPlan:
        status = admin_pb2.ReplayStatus(
            replay="r",
            attempts=attempts,
            snapshot=marker_to_message(begun or marker_at(2)),
            begin=marker_to_message(marker_at(0)),
            until=marker_to_message(marker_at(3)),
        )
        looked = [seen(flow("a", marker_at(stands), replay=status))]
        return resumed(wish(snapshot=snapshot), setting(store), looked)[0][0]

    for one in (taken_up(3, 0), taken_up(0, 2)):
        assert (one.first, one.range.begin) == (marker_at(0), marker_at(2)), "not all of its rows are there"
    assert (taken_up(2, 3).first, taken_up(2, 3).range.begin) == (None, marker_at(2))
    other = snapshot_at(tmp_path / "other", a=marker_at(3))
    for named, begun in ((other, None), (folder, marker_at(3))):
        with pytest.raises(ReplayError, match="was begun with one that ends at") as caught:
            taken_up(0, 2, named, begun)
        assert "--cancel r" in str(caught.value.hint)
    without = taken_up(0, 2, "")
    assert (without.first, without.range.begin) == (None, marker_at(0)), "the archive has all of it too"
    manifest = manifest_of(store)
    store.change("a", lambda _: expired(manifest))
    with pytest.raises(ReplayError, match="no snapshot holds what is before") as caught:
        taken_up(0, 2, "")
    assert "--snapshot FOLDER" in str(caught.value.hint)
    assert "--snapshot" in wish(snapshot=folder).resume_command


# --- pieces ---


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
    with pytest.raises(ArchiveError, match=r"/a/.* \[archive-damaged\]") as caught:
        list(log_pieces(four, "a", marker_at(0), marker_at(8), ALL))
    assert (caught.value.shard, caught.value.position) == ("a", "1/1/200 to 1/1/400")
    assert "verify" in str(caught.value.hint)


def test_a_file_that_goes_while_it_is_read_is_tried_again(four: ArchiveStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> Iterator[Segment]:
        raise ArchiveError("no such key") from FileNotFoundError("no such key")

    monkeypatch.setattr(DataFile, "segments", gone)
    with pytest.raises(ArchiveUnavailable, match="was deleted while it was read"):
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
    with pytest.raises(ReplayError, match="cannot be read again"):
        list(found.pieces(b"", ALL))


# --- estimate: the share of keys; what Spark counts is tested with the frames (``test_frames``) ---


@pytest.mark.parametrize(("updates", "keys", "share"), [(100, 25, 0.25), (7, 7, 1.0), (100, 102, 1.0), (0, 0, 1.0)])
def test_keys_per_update_are_never_more_than_one(updates: int, keys: int, share: float) -> None:
    assert Estimate("a", updates, 0, keys).distinct == share


@pytest.mark.parametrize("keys", [0, 1, 4095, 4096, 50_000])
def test_a_sketch_knows_how_many_keys_there_are_in_little_memory(keys: int) -> None:
    found, half = Sketch(), Sketch()
    for first in range(0, keys, 1000):
        batch = [blake2b(b"%d" % key, digest_size=8).digest() for key in range(first, min(keys, first + 1000))]
        (half if first % 2000 else found).add(int.from_bytes(one) for one in [*batch, *batch])
    found.add(half.hashes)
    assert len(found.hashes) == min(keys, 4096)
    assert found.count == (keys if keys < 4096 else pytest.approx(keys, rel=0.05))


def test_a_key_counts_once_in_each_table() -> None:
    changes = [Change(Op.UPDATE, id_, {"a": 1, "b": 1}, schema=schema) for id_ in (1, 2, 1) for schema in (OLD, ALSO)]
    [batch] = as_in_files(changes, [])
    assert len(set(_hashes(batch))) == 4


def test_each_change_of_a_table_without_a_key_counts_as_a_key(tmp_path: Path) -> None:
    changes = [Change(Op.INSERT, 1, {"a": 1, "b": 1}, schema=schema) for schema in (KEYLESS, OLD, OLD, KEYLESS)]
    [batch] = as_in_files(changes, [])
    assert len(set(_hashes(batch))) == 1
    visits = replace(CUSTOMERS, table="shop.visits", key=())
    visit = replace(row(Op.INSERT, (1, "Ann", "Rome", 10), schema=visits), key=())
    store = write_archive(tmp_path / "archive", {"a": [[tx(visit), tx(visit)], [tx(visit, *[put(b"k", b"v")] * 3)]]})
    (found,) = estimate(None, store, [ShardFiles("a", manifest_of(store).files)]).values()
    assert (found.updates, found.keys) == (6, 4)


def test_a_small_range_is_looked_through_without_spark(tmp_path: Path) -> None:
    store = write_archive(
        tmp_path / "archive",
        {"a": [[tx(put(b"k1", b"v")), tx(put(b"k2", b"v"))], [tx(put(b"k1", b"w"), put(b"k3", b"w"))]]},
    )
    manifest = manifest_of(store)
    chosen = [ShardFiles("a", manifest.files, marker_at(1), marker_at(3))]
    assert is_small(chosen)
    assert not is_small([replace(chosen[0], files=(replace(manifest.files[0], raw=1 << 30),))])
    (found,) = estimate(None, store, chosen).values()
    assert (found.updates, found.keys) == (3, 3)
    Path(store.data_path("a", manifest.files[0].name)).unlink()
    with pytest.raises(ArchiveError, match=manifest.files[0].name):
        estimate(None, store, chosen)
