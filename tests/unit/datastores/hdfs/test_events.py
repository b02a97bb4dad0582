"""The updates of edits that a NameNode of Hadoop 3.5 sent: ``edits.bin`` has every kind of event once or more."""

from __future__ import annotations

from pathlib import Path

import pytest

from datastores.hdfs.decode.events import COLUMNS, Edit, Edits, table_of
from datastores.hdfs.decode.messages import EditsResponse, class_of
from tests.support.edits import MadeEdits, event
from wormhole.model.errors import DecodeError
from wormhole.model.values import UNAVAILABLE, Op

RECORDED = Path(__file__).with_name("edits.bin").read_bytes()
EDITS = Edits.decode(RECORDED)
DAY = "/lake/day=1"
PART = f"{DAY}/part-1"


def edits_of(txid: int) -> tuple[Edit, ...]:
    (batch,) = (one for one in EDITS.batches if one.txid == txid)
    return batch.edits


def known(edit: Edit) -> dict[str, object]:
    """The columns that the edit has and that are not NULL."""
    named = zip((column.name for column in COLUMNS), edit.values, strict=True)
    return {name: value for name, value in named if value is not UNAVAILABLE and value is not None}


def test_the_piece() -> None:
    assert (EDITS.first, EDITS.last, EDITS.synced) == (1, 44, 44)
    assert [batch.txid for batch in EDITS.batches][:4] == [2, 3, 4, 8]
    assert all(1_796_048_331_000 < batch.at_ms < 1_796_048_350_000 for batch in EDITS.batches[:3])


@pytest.mark.parametrize(
    ("txid", "path", "columns"),
    [
        (8, f"{DAY}/part-0", {"event": "close", "size": 1000, "mtime_ms": 1796048335638}),
        (9, f"{DAY}/part-0", {"event": "append"}),
        (14, f"{DAY}/part-0", {"event": "truncate", "size": 500, "mtime_ms": 1796048335780}),
        (27, DAY, {"event": "metadata", "owner": "ann"}),
        (28, DAY, {"event": "metadata", "group": "staff"}),
        (29, DAY, {"event": "metadata", "permission": "750"}),
        (30, PART, {"event": "metadata", "mtime_ms": 1000}),
        (31, PART, {"event": "metadata", "replication": 2}),
        (33, PART, {"event": "metadata", "xattrs": {b"user.origin": b"kafka"}, "xattrs_removed": False}),
        (34, PART, {"event": "metadata", "xattrs": {b"user.origin": b""}, "xattrs_removed": True}),
        (44, "/", {"event": "metadata", "owner": "hdfs"}),
    ],
)
def test_an_update_has_what_the_event_has(txid: int, path: str, columns: dict[str, object]) -> None:
    (edit,) = edits_of(txid)
    assert (edit.op, edit.path, known(edit)) == (Op.UPDATE, path, columns | {"name": path.rpartition("/")[2]})


@pytest.mark.parametrize(
    ("txid", "columns"),
    [
        (3, {"type": "directory", "permission": "755", "mtime_ms": 1796048331800}),
        (
            4,
            {
                "type": "file",
                "permission": "644",
                "size": 0,
                "replication": 1,
                "block_size": 128 << 20,
                "mtime_ms": 1796048332443,
            },
        ),
        (35, {"type": "symlink", "permission": "777", "target": "day=1", "mtime_ms": 1796048341678}),
    ],
)
def test_a_new_path_has_every_column(txid: int, columns: dict[str, object]) -> None:
    (edit,) = edits_of(txid)
    of_all = {
        "event": "create",
        "name": edit.path.rpartition("/")[2],
        "owner": "root",
        "group": "supergroup",
        "erasure_coded": False,
    }
    assert (edit.op, known(edit)) == (Op.UPSERT, of_all | columns)
    assert not any(value is UNAVAILABLE for value in edit.values)


def test_access_control_lists_are_as_getfacl_writes_them() -> None:
    (edit,) = edits_of(32)
    assert str(known(edit)["acl"]).split(",")[:3] == ["user::rwx", "user:bob:r--", "group::r-x"]
    assert str(known(edit)["acl"]).split(",")[-1] == "default:other::---"


def test_a_removal_is_of_the_path_and_of_the_range_below() -> None:
    assert edits_of(43) == (
        Edit(Op.DELETE, "/lake/täg=1"),
        Edit(Op.DELETE_RANGE, "/lake/täg=1/", key_end="/lake/täg=10"),
    )


@pytest.mark.parametrize("name", ["/lake/täg=1/a", "/lake/täg=1/a/b", "/lake/täg=1/\U0010ffff"])
def test_what_is_below_is_in_the_range(name: str) -> None:
    _, below = edits_of(43)
    assert below.path <= name < below.key_end


@pytest.mark.parametrize("name", ["/lake/täg=1", "/lake/täg=1.", "/lake/täg=1-a", "/lake/täg=10", "/lake/täg=2"])
def test_what_is_beside_is_not_in_the_range(name: str) -> None:
    _, below = edits_of(43)
    assert not below.path <= name < below.key_end


def test_a_rename_removes_both_paths_first() -> None:
    removed, below, replaced, renamed = edits_of(41)
    assert (removed, below) == (
        Edit(Op.DELETE, "/lake/.tmp"),
        Edit(Op.DELETE_RANGE, "/lake/.tmp/", key_end="/lake/.tmp0"),
    )
    assert replaced == Edit(Op.DELETE, PART)
    assert (renamed.op, renamed.path) == (Op.UPSERT, PART)
    assert known(renamed) == {"event": "rename", "name": "part-1", "renamed_from": "/lake/.tmp"}


def test_a_concatenation_has_no_size_and_removes_its_sources() -> None:
    appended, removed, _, closed = edits_of(26)
    assert (appended.path, closed.path, removed.path) == (PART, PART, f"{DAY}/part-2")
    assert known(closed) == {"event": "close", "name": "part-1", "mtime_ms": 1796048340224}


def test_the_checksum_depends_on_each_event_and_their_order() -> None:
    one, other = event("Append", path="/a"), event("Append", path="/b")
    made = MadeEdits()
    for events in ([one, other], [other, one], [one], [event("Unlink", path="/a", timestamp=0)]):
        made.commit(*events)
    made.commit(one, other)
    sums = [batch.checksum for batch in made.edits(1).batches]
    assert len(set(sums[:4])) == 4
    assert sums[4] == sums[0]


@pytest.mark.parametrize(
    ("path", "table"), [("/", "/"), ("/a", "a"), ("/a/b", "a"), ("/a/", "a"), ("a", "a"), ("", "")]
)
def test_a_table_is_the_first_folder(path: str, table: str) -> None:
    assert table_of(path) == table


@pytest.mark.parametrize("kind", [7, -1])
def test_an_unknown_event_is_named(kind: int) -> None:
    message = class_of("EventProto")(type=kind)
    made = MadeEdits()
    made.commit(message)
    with pytest.raises(DecodeError, match=f"transaction 1 has an event of kind {kind}") as error:
        made.edits(1)
    assert error.value.hint


def test_damage_is_one_error() -> None:
    with pytest.raises(DecodeError, match="not in the form"):
        Edits.decode(RECORDED[:-1])
    text = class_of("EventProto")(type=2, contents=b"\x0a\x01\xff")
    response = EditsResponse()
    response.eventsList.batch.add(txid=1, events=[text])
    with pytest.raises(DecodeError, match="not in the form"):
        Edits.decode(response.SerializeToString())
