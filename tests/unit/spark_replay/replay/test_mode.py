"""Which way a shard is replayed, and the reason that people read."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_replay.archive.manifest import FileEntry
from spark_replay.frames import ShardFiles
from spark_replay.replay import mode_selection
from spark_replay.replay.estimate import Estimate
from spark_replay.replay.flow_plans import FlowPlan, filters, plan
from spark_replay.replay.keyed import PART_BYTES
from spark_replay.replay.mode import BREAK_EVEN, Choice, Wanted, choose, obstacle, unfit
from tests.support.archives import marker_at
from tests.support.replay_plans import archived, flow, seen, setting, wish
from wormhole.filters import Filter
from wormhole.formats import ValueFormats
from wormhole.model.errors import ReplayError
from wormhole.model.schema import Column, Schema

# --- mode: which way a shard is replayed, and the reason that people read ---


T = Schema("t", (Column("id", "int"),), (Column("id", "int"), Column("state", "text")))
WIDER = Schema("t", (Column("id", "int"),), (Column("id", "int"), Column("state", "text"), Column("note", "text")))
REKEYED = Schema("t", (Column("id", "int"), Column("part", "int")), T.columns)
KEYLESS = Schema("t", (), T.columns)
OTHER = Schema("u", (Column("name", "text"),), (Column("name", "text"),))
SCHEMAS = {schema.id: schema for schema in (T, WIDER, REKEYED, KEYLESS, OTHER)}


def entry(
    number: int = 1, schemas: tuple[Schema, ...] = (T,), ops: Mapping[str, int] | None = None, **given: Any
) -> FileEntry:
    return FileEntry(
        name=f"{number}.parquet",
        rows=10,
        bytes=100,
        begin=marker_at(number - 1),
        end=marker_at(number),
        first_us=0,
        last_us=0,
        ops={"update": 6, "delete": 4, "merge": 0} if ops is None else ops,
        tables={"t": 10},
        schemas={f"{schema.id:016x}": schema.table for schema in schemas},
        **given,
    )


def of(*files: FileEntry) -> dict[int, Schema]:
    return {int(name, 16): SCHEMAS[int(name, 16)] for file in files for name in file.schemas}


def why(*files: FileEntry, filters: tuple[str, ...] = (), where: str | None = None) -> str | None:
    asked = [Filter.parse(text) for text in filters]
    return obstacle(files, asked, Filter.parse(where) if where else None, of(*files))


def chosen(wanted: Wanted, keys: int, *files: FileEntry, text: str | None = None) -> Choice:
    shard = ShardFiles("a", files or (entry(),))
    counted = {"a": Estimate("a", 10_000, 0, 100 * keys)}
    filters = [Filter.parse(text)] if text else []
    return choose(wanted, [shard], filters=filters, schemas=of(*shard.files), estimates=counted)["a"]


@pytest.mark.parametrize(
    ("file", "told"),
    [
        (entry(ops={"upsert": 5, "merge": 1_200}), "1.parquet holds 1,200 MERGE"),
        (entry(ops={"delete_range": 2, "truncate": 1}), "1.parquet holds 2 DELETE_RANGE, 1 TRUNCATE"),
        (entry(key_changes=3), "1.parquet holds 3 changes of a key"),
        (entry(too_large=1), "1.parquet holds 1 updates that came without their values, being too large"),
        (entry(2, (T, REKEYED)), "the key of t changed its layout"),
    ],
)
def test_what_one_row_per_key_cannot_stand_for(file: FileEntry, told: str) -> None:
    plain = entry(3)
    assert why(file, plain) == why(plain, file) == told
    assert why(plain) is None


LAYOUT = "the key of t changed its layout"


@pytest.mark.parametrize(
    ("files", "told"),
    [
        ([entry(1, (T,)), entry(2, (REKEYED,))], LAYOUT),
        ([entry(1, (T,)), entry(2, (WIDER, OTHER))], None),
        ([entry(1, (T,)), entry(2, (KEYLESS,))], LAYOUT),
        ([entry(1, (KEYLESS,)), entry(2, (T,))], LAYOUT),
        # Rows of a table without a key are pushed one by one, see ``latest``; a TRUNCATE is one as of any table.
        ([entry(1, (KEYLESS, OTHER))], None),
        ([entry(1, (KEYLESS,), ops={"insert": 3, "truncate": 1})], "1.parquet holds 1 TRUNCATE"),
    ],
)
def test_a_key_that_changed_its_layout_from_file_to_file(files: list[FileEntry], told: str | None) -> None:
    assert why(*files) == told


@pytest.mark.parametrize(
    "text",
    [
        "op == 'delete'",
        "not op in ('insert')",
        "changed(state)",
        "state == 'x' and entered",
        "state == 'x' and not left",
    ],
)
def test_a_filter_that_asks_for_the_change_needs_every_change(text: str) -> None:
    for found in (why(entry(), filters=(text,)), why(entry(), where=text)):
        assert found is not None
        assert "asks what kind of change it is" in found


@pytest.mark.parametrize("text", ["table == 't'", "key == 3", "id > 3", "hash(key) % 4 == 1", "key[0] in (1, 2)"])
def test_a_filter_of_tables_and_keys_is_no_obstacle(text: str) -> None:
    assert why(entry(), filters=(text,), where=text) is None
    assert why(entry(partial=10), filters=(text,), where=text) is None
    assert chosen("latest", 1, text=text).by_values is False


def test_a_filter_of_values_is_reported_and_one_of_this_replay_needs_every_change() -> None:
    assert why(entry(), filters=("state == 'x'",)) is None
    assert chosen("latest", 1, text="state == 'x'").by_values is True
    assert chosen("auto", 1, text="table == 't' and (id == 1 or state == 'x')").by_values is True
    assert (
        why(entry(), where="state == 'x'")
        == '--where state == "x" asks for values, which earlier changes of a key may have had'
    )
    parts = why(entry(partial=1), filters=("state == 'x'",))
    assert parts == "the log holds parts of rows, and the application's filter asks for values"


def test_a_name_that_is_no_key_of_every_table_counts_as_a_value() -> None:
    """``id`` is the key of ``t``; in ``u`` there is none of this name."""
    assert chosen("latest", 1, entry(schemas=(T,)), text="id == 3").by_values is False
    assert chosen("latest", 1, entry(schemas=(T, OTHER)), text="id == 3").by_values is True


@pytest.mark.parametrize(("keys", "mode"), [(1, "latest"), (69, "latest"), (70, "log"), (100, "log")])
def test_auto_goes_by_the_share_of_keys(keys: int, mode: str) -> None:
    assert BREAK_EVEN == 0.7
    choice = chosen("auto", keys)
    assert choice.mode == mode
    assert f"about {100 * keys:,} keys in 10,000 updates" in choice.reason


@pytest.mark.parametrize(
    ("raw", "partial", "keys", "mode"),
    [
        (PART_BYTES, 0, 69, "latest"),
        (PART_BYTES + 1, 0, 50, "log"),
        (PART_BYTES + 1, 0, 49, "latest"),
        (1, 10, 35, "log"),
        (1, 10, 34, "latest"),
        (10 * PART_BYTES, 5, 38, "log"),
        (10 * PART_BYTES, 5, 37, "latest"),
    ],
)
def test_auto_knows_from_the_manifest_what_a_fold_costs(raw: int, partial: int, keys: int, mode: str) -> None:
    choice = chosen("auto", keys, entry(raw=raw, partial=partial))
    assert choice.mode == mode
    assert ("parts of rows" in choice.reason) is (partial > 0)
    assert choice.reason.startswith("every change: about" if mode == "log" else "the last of each key: about")


def test_auto_takes_every_change_where_it_must() -> None:
    choice = chosen("auto", 1, entry(key_changes=1))
    assert choice == Choice("a", "log", "every change: 1.parquet holds 1 changes of a key")
    assert chosen("log", 1).mode == "log"


def test_auto_needs_to_know_how_many_keys_there_are() -> None:
    with pytest.raises(ValueError, match="no estimate of a"):
        choose("auto", [ShardFiles("a", (entry(),))], schemas=SCHEMAS)


def test_latest_that_cannot_be_is_refused_with_every_reason() -> None:
    shards = [
        ShardFiles("a", (entry(key_changes=1),)),
        ShardFiles("b", (entry(),)),
        ShardFiles("c", (entry(too_large=2),)),
    ]
    with pytest.raises(ReplayError) as caught:
        choose("latest", shards, schemas=SCHEMAS)
    assert "a: 1.parquet holds 1 changes of a key; c: 1.parquet holds 2 updates" in caught.value.message
    assert "--mode auto" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("text", "plain", "valued"),
    [
        ("id == 3", None, None),
        ("state == 'x'", "brought together for one that does not", None),
        ("changed(state)", "asks what kind of change it is", "asks what kind of change it is"),
        ("id == 3 and op == 'delete'", "asks what kind of change it is", "asks what kind of change it is"),
    ],
)
def test_what_was_brought_together_is_not_for_every_filter(text: str, plain: str | None, valued: str | None) -> None:
    for by_values, told in ((False, plain), (True, valued)):
        found = unfit(Filter.parse(text), {T.id: T}, by_values=by_values)
        assert (found is None) == (told is None)
        assert (told or "") in (found or "")


# --- mode selection ---


SPARK: Any = SimpleNamespace()


def decided(folder: Path, wanted: str, monkeypatch: pytest.MonkeyPatch, **plans: Any) -> list[FlowPlan]:
    store = archived(folder)
    counted = {"a": Estimate("a", 10_000_000, 100, 1), "b": Estimate("b", 10, 100, 9)}
    monkeypatch.setattr(mode_selection, "estimate", lambda *_: counted)
    asked = wish(mode=wanted)
    looked = [seen(flow("a", marker_at(0)), flow("b", marker_at(0)))]
    found = plan(asked, setting(store), looked)
    for one in found:
        for name, value in plans.items():
            setattr(one, name, value)
    mode_selection.decide(
        SPARK, asked, setting(store), filters(asked, setting(store), ValueFormats()), found, counts=False
    )
    return sorted(found, key=lambda one: one.flow)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("log", ["log", "log"]), ("latest", ["latest", "latest"]), ("auto", ["latest", "log"])],
)
def test_each_flow_gets_its_mode_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, expected: list[str]
) -> None:
    found = decided(tmp_path, mode, monkeypatch)
    assert [one.mode for one in found] == expected
    assert all(one.reason for one in found)


def test_what_was_begun_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = decided(tmp_path, "auto", monkeypatch, begun=True, mode="latest")
    assert [(one.mode, one.reason) for one in found] == [("latest", "as it was begun")] * 2


def test_an_archive_that_lacks_a_part_gives_every_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = decided(tmp_path, "auto", monkeypatch, lacks="it lacks a part")
    assert [(one.mode, one.reason) for one in found] == [("log", "every change: it lacks a part")] * 2
    (tmp_path / "latest").mkdir()
    with pytest.raises(ReplayError, match=r"cannot stand for all of them: \w: it lacks a part") as caught:
        decided(tmp_path / "latest", "latest", monkeypatch, lacks="it lacks a part")
    assert "--mode auto" in str(caught.value.hint)


def test_a_begun_one_that_cannot_go_on_names_a_step_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise ReplayError("it cannot be", hint="take --mode auto")

    monkeypatch.setattr(mode_selection, "choose", refuses)
    with pytest.raises(ReplayError, match="it cannot be") as caught:
        decided(tmp_path, "auto", monkeypatch, begun=True, mode="latest")
    assert "--cancel r" in str(caught.value.hint)
