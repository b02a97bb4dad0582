"""Two looks at the catalogue, and what changed between them without a trace in the log."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from datastores.postgres.server.connection import Connection, ServerError
from datastores.postgres.tables.facts import Change, Facts, changes, facts_of
from datastores.postgres.tables.unlogged_changes import UnloggedChange, UnloggedChanges
from wormhole.model.errors import SourceUnavailable

# --- facts: two looks at the catalogue, and what changed between them without a trace in the log ---


def row(oid: int, name: str = "s.t", **more: Any) -> dict[str, Any]:
    columns = [[1, "id", 23, "", False], [2, "v", 25, "", False]]
    known = {"oid": oid, "name": name, "kind": "r", "persistence": "p", "file": oid, "place": [0, 2], "parent": None}
    return (
        known
        | {"altered": False, "late": False, "columns": columns, "key": [1], "listed": None, "in_schema": False}
        | more
    )


def facts(*rows: dict[str, Any], publication: Any = (True, True), types: Any = None) -> Facts:
    return facts_of({"publication": publication, "types": types, "tables": rows})


def found(before: Facts, now: Facts, **gone: str) -> list[Change]:
    return list(changes(before, now, gone))


BEFORE = facts(row(20000))


@pytest.mark.parametrize(
    "now",
    [
        facts(row(20000)),
        facts(row(20000), row(20001, "s.new")),
        facts(row(20000, place=[1700, 2], file=20009)),  # SET TABLESPACE
        facts(row(20000, columns=[[1, "id", 23, "", False], [3, "n", 23, "", False]])),
        facts(),
    ],
    ids=["nothing", "a new table", "another tablespace", "columns without values", "dropped"],
)
def test_what_leaves_rows_as_they_are(now: Facts) -> None:
    assert found(BEFORE, now) == []


@pytest.mark.parametrize(
    ("now", "why"),
    [
        (facts(row(20001)), "another table took its name"),
        (facts(row(20000, columns=[[1, "id", 23, "", False], [3, "n", 23, "", True]])), "n was added with a default"),
        (facts(row(20000, columns=[[1, "id", 26, "", False], [2, "w", 25, "", False]])), "v was renamed to w"),
        (facts(row(20000, columns=[[1, "id", 1700, "", False], [2, "v", 25, "", False]])), "id has another type"),
        (facts(row(20000, columns=[[1, "id", 23, "", False], [2, "v", 25, "s", False]])), "v is generated"),
        (facts(row(20000, key=[2])), "its key has other columns"),
        (facts(row(20000, listed=["a row filter", None])), "other rows or columns"),
        (facts(row(20000, key=[2], file=20009)), "written anew"),
    ],
)  # fmt: skip
def test_what_changes_rows(now: Facts, why: str) -> None:
    (change,) = found(BEFORE, now)
    assert change.table == "s.t"
    assert why in ", ".join(change.why)
    assert not change.files


def test_another_file_alone_may_be_a_truncate() -> None:
    (change,) = found(BEFORE, facts(row(20000, file=20009)))
    assert change.files


def test_a_table_that_comes_back_under_its_name_is_another_one() -> None:
    assert not found(facts(), BEFORE)
    (change,) = found(facts(), BEFORE, **{"s.t": "19000"})
    assert "took its name" in change.why[0]
    (change,) = found(facts(row(20000, "s.old")), BEFORE, **{"s.t": "19000"})
    assert change.why == ("the table s.old was renamed to it",)


def test_a_partition_counts_for_the_table_that_is_published() -> None:
    root = row(30000, kind="p", file=0)
    before = facts(root, row(30001, "s.a", parent=30000), row(30002, "s.b"))
    assert set(before.tables) == {"s.t", "s.b"}
    new = facts(root, row(30001, "s.a", parent=30000), row(30002, "s.b"), row(30003, "s.c", parent=30000))
    assert not found(before, new)
    (attached,) = found(before, facts(root, row(30001, "s.a", parent=30000), row(30002, "s.b", parent=30000)))
    assert (attached.table, attached.unless_empty) == ("s.t", ("30002",))
    made = row(30003, "s.c", parent=30000, altered=True)
    (attached,) = found(before, facts(root, row(30001, "s.a", parent=30000), row(30002, "s.b"), made))
    assert attached.unless_empty == ("30003",)
    (gone,) = found(before, facts(root, row(30002, "s.b")))
    assert gone.why == ("a partition was detached or dropped",)
    (anew,) = found(before, facts(root, row(30001, "s.a", parent=30000, file=30009), row(30002, "s.b")))
    assert (anew.table, anew.files) == ("s.t", True)


def test_partitions_under_their_own_names() -> None:
    root = row(30000, kind="p", file=0)
    assert set(facts(root, row(30001, "s.a", parent=30000), publication=(True, False)).tables) == {"s.a"}


def test_only_what_is_published_counts() -> None:
    listed, other = row(20000, listed=[None, None]), row(20001, "s.u")
    before = facts(listed, other, publication=(False, True))
    assert set(before.tables) == {"s.t"}
    now = facts(listed, other | {"listed": [None, None]}, publication=(False, True))
    assert [(change.table, change.why) for change in found(before, now)] == [
        ("s.u", ("it is in the publication from now on",))
    ]
    assert facts(listed, publication=None).tables == {}
    assert not facts(row(20000, persistence="u")).tables


@pytest.mark.parametrize(
    ("now", "changed"),
    [
        ({"99": {"1": "sad", "2": "fine", "3": "new"}}, False),
        ({"99": {"1": "blue", "2": "fine"}}, True),
    ],
)
def test_types_that_columns_consist_of(now: dict[str, Any], changed: bool) -> None:
    """An array of a composite of a domain over an enum."""
    others = {"50": "51", "51": [[1, "52"]], "52": "99"}
    table = row(20000, columns=[[1, "id", 23, "", False], [2, "v", 50, "", False]])
    before = facts(table, types=others | {"99": {"1": "sad", "2": "fine"}})
    assert bool(found(before, facts(table, types=others | now))) is changed
    wider = others | now | {"51": [[1, "52"], [2, "23"]]}
    assert found(before, facts(table, types=wider))[0].why == ("a type of its columns was altered",)


# --- unlogged changes: what a look at the catalogue finds is kept before it counts, and not for ever ---


class Catalogue:
    """Answers with these tables. The log ends 0x100 further at each look, and ``meanwhile`` further while the tables
    are read. ``rewritten``: the answer to whether a statement wrote a table's rows anew.
    """

    version = 150004

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []
        self.locked: list[int] = []
        self.meanwhile = 0
        self.rewritten: bool | Exception = False
        self._place = 0x1000

    def query(self, sql: str, **_options: Any) -> list[tuple[str, ...]]:
        if "pg_locks" in sql:
            self._place += 0x100
            return [(f"0/{self._place:X}", json.dumps(self.locked))]
        if sql.startswith("SET "):
            return []
        if sql.startswith("WITH files"):
            if isinstance(self.rewritten, Exception):
                raise self.rewritten
            return [("1",)] if self.rewritten else []
        self._place += self.meanwhile
        text = json.dumps({"publication": [True, True], "types": None, "tables": self.tables})
        return [(text, str(hash(text)), f"0/{self._place:X}", "8192", "16777216")]


class State:
    """Documents in memory, which cannot be written while it is ``full``."""

    def __init__(self) -> None:
        self.documents: dict[str, str] = {}
        self.full = False

    def read(self, name: str) -> dict[str, Any]:
        return cast("dict[str, Any]", json.loads(self.documents.get(name, "{}")))

    def write(self, name: str, content: dict[str, Any]) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.documents[name] = json.dumps(content)


def look(changes: UnloggedChanges, catalogue: Catalogue, *tables: dict[str, Any]) -> dict[str, UnloggedChange]:
    catalogue.tables = list(tables)
    changes.look(cast("Connection", catalogue), "p", "server", 0)
    return dict(changes.of("server").changes)


def test_what_a_full_disk_did_not_take_is_found_again() -> None:
    state, catalogue = State(), Catalogue()
    changes = UnloggedChanges(state)
    look(changes, catalogue, row(20000))
    look(changes, catalogue)
    state.full = True
    with pytest.raises(SourceUnavailable, match="No space left"):
        look(changes, catalogue, row(20001))
    assert not changes.of("server").changes
    state.full = False
    found = look(changes, catalogue, row(20001))
    assert found == {"s.t": UnloggedChange(0x1400, 0x1200)}, "another table has its name, since the look that was kept"
    assert look(UnloggedChanges(state), catalogue, row(20001)) == found


def test_a_table_that_is_gone_is_not_kept() -> None:
    state, catalogue = State(), Catalogue()
    changes = UnloggedChanges(state)
    look(changes, catalogue, row(20000), row(20001, "s.u"))
    assert look(changes, catalogue, row(20000, key=[2]), row(20001, "s.u", key=[2])).keys() == {"s.t", "s.u"}
    assert look(changes, catalogue, row(20000, key=[2])).keys() == {"s.t"}


def test_what_commits_while_a_look_reads_counts_for_the_next_one() -> None:
    """A TRUNCATE that the look did not see is in the log before the place at which the log then ends."""
    changes, catalogue = UnloggedChanges(State()), Catalogue()
    catalogue.meanwhile = 0x10
    look(changes, catalogue, row(20000))
    look(changes, catalogue, row(20000))
    found = look(changes, catalogue, row(20000, file=20009))
    assert found == {"s.t": UnloggedChange(0x1330, 0x1210, files=True)}


def test_a_commit_that_no_look_sees_yet_may_be_as_old_as_its_lock() -> None:
    changes, catalogue = UnloggedChanges(State()), Catalogue()
    look(changes, catalogue, row(20000))
    for catalogue.locked in [20000], [20000, 20002]:
        look(changes, catalogue, row(20000))
    found = look(changes, catalogue, row(20000, file=20009))
    assert found == {"s.t": UnloggedChange(0x1400, 0x1100, files=True)}
    catalogue.locked = []
    look(changes, catalogue, row(20000, file=20009))
    found = look(changes, catalogue, row(20000, file=20010))
    assert found == {"s.t": UnloggedChange(0x1600, 0x1500, files=True)}


@pytest.mark.parametrize(
    ("rewritten", "by_truncate"),
    [
        (False, True),
        (True, False),
        (ServerError("locked", sqlstate="55P03", hint=""), False),
        (ServerError("no such table", sqlstate="42P01", hint=""), True),
        (ServerError("permission denied", sqlstate="42501", hint=""), True),
    ],
)
def test_rows_that_were_written_into_a_new_file_are_no_truncate(rewritten: bool | Exception, by_truncate: bool) -> None:
    changes, catalogue = UnloggedChanges(State()), Catalogue()
    look(changes, catalogue, row(20000))
    catalogue.rewritten = rewritten
    assert look(changes, catalogue, row(20000, file=20009))["s.t"].files is by_truncate


def test_names_are_known_by_the_tables_number(caplog: pytest.LogCaptureFixture) -> None:
    """Also those of tables that are skipped, and behind a restart."""
    state, catalogue = State(), Catalogue()
    changes = UnloggedChanges(state, frozenset({"hidden.*"}))
    look(changes, catalogue, row(20000), row(20001, "s.u"))
    renamed = row(20000, "s.new"), row(20001, "hidden.u")
    assert look(changes, catalogue, *renamed).keys() == {"s.new"}
    for kept in changes, UnloggedChanges(state, frozenset({"hidden.*"})):
        noticed = kept.of("server")
        assert noticed.changes.keys() == {"s.new"}
        assert noticed.names == {20000: (0x1200, "s.new"), 20001: (0x1200, "hidden.u")}
        assert kept.of("server") is noticed
        assert not kept.of("another server").names
    assert "s.t was renamed to s.new" in caplog.text
    assert "backfill start APP --tables hidden.u" not in caplog.text
