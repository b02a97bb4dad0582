"""What a look at the catalogue finds is kept before it counts, and not for ever."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from datastores.postgres.server.connection import Connection
from datastores.postgres.tables.unlogged_changes import UnloggedChange, UnloggedChanges
from tests.unit.datastores.postgres.tables.test_facts import row
from wormhole.model.errors import SourceUnavailable


class Catalogue:
    """Answers with these tables. The log ends 0x100 further at each look, and ``meanwhile`` further while the tables
    are read.
    """

    version = 150004

    def __init__(self) -> None:
        self.tables: list[dict[str, Any]] = []
        self.locked: list[int] = []
        self.meanwhile = 0
        self._place = 0x1000

    def query(self, sql: str, **_options: Any) -> list[tuple[str, ...]]:
        if "pg_locks" in sql:
            self._place += 0x100
            return [(f"0/{self._place:X}", json.dumps(self.locked))]
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
    return dict(changes.of("server"))


def test_what_a_full_disk_did_not_take_is_found_again() -> None:
    state, catalogue = State(), Catalogue()
    changes = UnloggedChanges(state)
    look(changes, catalogue, row(20000))
    look(changes, catalogue)
    state.full = True
    with pytest.raises(SourceUnavailable, match="No space left"):
        look(changes, catalogue, row(20001))
    assert not changes.of("server")
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
