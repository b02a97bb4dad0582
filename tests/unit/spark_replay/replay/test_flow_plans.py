from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import grpc
import pytest

from spark_replay.archive.manifest import KnownLoss, Manifest, marker_to_text
from spark_replay.archive.ranges import Asked
from spark_replay.replay.flow_plans import FlowPlan, check_free, filters, nobody_takes, plan, resumed, where_of
from spark_replay.tables.about import ABOUT, SnapshotAbout, SnapshotShard, SnapshotTable, about_to_json
from spark_replay.tables.folder import Folder
from tests.support.archives import manifest_of, marker_at, put, tx, write_archive
from tests.support.replay_plans import archived, flow, seen, setting, wish
from tests.support.scripted_replay import Refused, ScriptedReplay, replay_publisher
from wormhole.config import FAILOVER
from wormhole.formats import ValueFormats
from wormhole.model.errors import FilterError, ReplayError, UsageError
from wormhole.model.position import Datamarker
from wormhole.wire.markers import marker_to_message
from wormhole.wire.v1 import admin_pb2


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
    assert nobody_takes("cache", plan(wish(), setting(store), [there])) is None
    error = nobody_takes("cache", plan(wish(), setting(store), [there, away]))
    assert error is not None
    assert (error.flow, "no subscriber of cache is connected (s1: gone)" in error.message) == ("cache/b", True)
    assert "wormholectl subscribers" in str(error.hint)


def test_a_flow_of_another_replay_is_refused() -> None:
    with replay_publisher(ScriptedReplay(marker_at(0))) as script:
        plans = [type("Plan", (), {"publisher": seen(reach=script.reach), "flow": "cache/a"})()]
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


def test_what_the_publisher_says_against_it_goes_through() -> None:
    with replay_publisher(ScriptedReplay(marker_at(0))) as script:
        script.refuses["begin"] = [Refused(grpc.StatusCode.FAILED_PRECONDITION, "parked updates", "retry them")]
        plans = [type("Plan", (), {"publisher": seen(reach=script.reach), "flow": "cache/a"})()]
        with pytest.raises(ReplayError, match="parked"):
            check_free(wish(), plans)


def snapshot_at(folder: Path, **places: Datamarker) -> str:
    shards = {shard: {"marker": marker_to_text(marker)} for shard, marker in places.items()}
    about = {"dataset": "orders", "copy": "main", "complete": True, "problems": [], "shards": shards, "schemas": []}
    Folder(str(folder), ABOUT).finish(about)
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
