"""Row changes that the log does not show: found in the catalogue, and reported to flows at a place of the log.

The catalogue is read about once a second, less often with thousands of tables. A change was made before the place at
which the log ends when the change is found. It is reported at that place.

The facts and the changes are stored with the histories, which the hosts of a log share. So a change made while no
publisher ran is found too. A flow that is behind still passes every reported place, also on another host, and after a
promotion, because LSNs continue there.
"""

from __future__ import annotations

import json
import logging
import shlex
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from datastores.common.kept_state import keep, load, not_ours
from datastores.postgres.decode.tables import skips
from datastores.postgres.server.connection import Connection, ServerError
from datastores.postgres.server.lsn import parse_lsn
from datastores.postgres.server.state import record_end
from datastores.postgres.sql_text import quote_literal, sql_name
from datastores.postgres.tables.facts import Change, Facts, changes, facts_of, question
from wormhole.ports.source_state import SourceState

__all__ = ["DOCUMENT", "NOTHING_NOTICED", "Noticed", "UnloggedChange", "UnloggedChanges"]

_log = logging.getLogger(__name__)

DOCUMENT: Final = "tables"
"""The document of a source's state with the facts and the changes."""

_TIMEOUT_S: Final = 30.0
_MOST_BYTES: Final = 256 << 20
_MOST_GONE: Final = 1000
_LOCKED: Final = "55P03"
# Whether the first blocks of a table have a row that a statement wrote into a new file. Such a statement writes the
# rows first, and gives the indexes new files later in the same transaction. TRUNCATE gives them new files before any
# row. A new index has its own OID as its file. A rewriting statement makes another TOAST table; TRUNCATE only another
# file of it. A table without both is compared with its own entry, which other statements change too.
_REWRITTEN: Final = """WITH files AS (SELECT k.xmin, k.cmin, k.oid = {number} AS own FROM pg_class k
  WHERE k.xmax = '0' AND (k.oid = {number}
    OR k.relfilenode <> k.oid AND k.oid IN (SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = {number})
    OR k.relfilenode = k.oid AND k.oid = (SELECT t.reltoastrelid FROM pg_class t WHERE t.oid = {number})))
SELECT 1 FROM ONLY {table} r JOIN files f ON f.xmin = r.xmin AND f.cmin::text::bigint >= r.cmin::text::bigint
WHERE r.tableoid = {number} AND r.ctid < '(64,0)' AND r.xmax = '0'
  AND NOT (f.own AND EXISTS (SELECT 1 FROM files WHERE NOT own)) LIMIT 1"""
_WHERE: Final = (
    "pg_current_wal_insert_lsn(), current_setting('wal_block_size'), "
    "(SELECT setting FROM pg_settings WHERE name = 'wal_segment_size')"
)
# The place is read before the locks.
_BEFORE: Final = """SELECT e.place, (SELECT json_agg(l.relation::bigint) FROM pg_locks l WHERE e.place IS NOT NULL
  AND l.mode = 'AccessExclusiveLock' AND l.granted
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()))
  FROM (SELECT pg_current_wal_insert_lsn() AS place OFFSET 0) e"""


@dataclass(frozen=True, slots=True)
class UnloggedChange:
    """A change of a table's rows after ``since`` and before ``place``.

    ``files``: it may be just a TRUNCATE, which is in the log after ``since`` if the publication publishes it.
    """

    place: int
    since: int
    files: bool = False


@dataclass(frozen=True, slots=True)
class Noticed:
    """``changes``: the last change of each table's rows, except of skipped tables. ``names``: by table OID, the place
    of its last change, and its name there.
    """

    changes: Mapping[str, UnloggedChange] = field(default_factory=dict)
    names: Mapping[int, tuple[int, str]] = field(default_factory=dict)


NOTHING_NOTICED: Final = Noticed()


class UnloggedChanges:
    """The unlogged changes of one database. One thread at a time calls :meth:`look`; any thread may call :meth:`of`.

    ``skipped``: tables whose changes are not reported; ``schema.*``: a whole schema.
    """

    def __init__(self, state: SourceState, skipped: frozenset[str] = frozenset()) -> None:
        """``state``: stores the changes. Raises :class:`~wormhole.model.errors.SourceUnavailable`."""
        self._state = state
        self._skipped = skipped
        self._lock = threading.Lock()  # guards the values that readers use
        self._facts: Facts | None = None
        self._digest = ""
        self._gone: dict[str, str] = {}
        self._system = ""
        self._since = 0
        self._locked: dict[int, int] = {}  # by OID of a table that was locked at the last reading, the place since when
        self._noted: dict[str, UnloggedChange] = {}
        self._noticed = NOTHING_NOTICED
        try:
            self._restore(load(state, DOCUMENT))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise not_ours(state, DOCUMENT) from None

    def of(self, system: str) -> Noticed:
        """The changes found in the histories of ``system``. The object is the same until a new change is found."""
        with self._lock:
            return self._noticed if system == self._system else NOTHING_NOTICED

    def look(self, connection: Connection, publication: str, system: str, read: int) -> bool:
        """Read the catalogue. Returns whether it changed since the last reading. ``read``: the place up to which the
        log was already read.

        Raises as :meth:`~datastores.postgres.server.connection.Connection.query`, the errors of writing the state, and
        ``ValueError`` for an answer that no PostgreSQL server gives.
        """
        # Read before the query's snapshot, because a transaction may commit between the snapshot and the answer. A
        # transaction whose commit is already in the log but not in the snapshot still holds its locks.
        ((began, locks),) = connection.query(_BEFORE)
        since = parse_lsn(began or "")
        locked = {number: self._locked.get(number, self._since) for number in json.loads(locks or "[]")}
        asked = question(connection.version, publication)
        ((text, digest, end, block, segment),) = connection.query(
            f"SELECT nullif(f.text, CASE WHEN md5(f.text) = {quote_literal(self._digest)} THEN f.text END), "  # noqa: S608
            f"md5(f.text), {_WHERE} FROM (SELECT {asked}::text AS text OFFSET 0) f",
            timeout_s=_TIMEOUT_S,
            most_bytes=_MOST_BYTES,
        )
        place = max(read, record_end(parse_lsn(end or ""), int(block or 0), int(segment or 0)))
        if text is None:
            self._since, self._locked = since, locked
            return False
        try:
            now = facts_of(json.loads(text))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{text:.100} describes no tables") from error
        before = self._facts if self._facts is not None and system == self._system else None
        found, noted = {}, {}
        gone = {name: number for name, number in self._gone.items() if name not in now.tables}
        if before is not None:
            found = dict(self._found(connection, before, now, place))
            changed = {int(number) for name in found for number in now.tables[name]["files"]}
            locked = {number: since for number, since in locked.items() if number not in changed}
            went = {name: str(before.tables[name]["oid"]) for name in sorted(before.tables.keys() - now.tables.keys())}
            for name, number in went.items():
                _report_gone(name, number, now)
            gone = dict([*gone.items(), *went.items()][-_MOST_GONE:])
            noted = {name: one for name, one in self._noted.items() if name in now.tables}
        noted |= found
        # Memory changes after the result is stored. If it cannot be stored, the next reading finds it again.
        self._keep(now, system, since, gone, noted)
        self._facts, self._since, self._locked, self._gone = now, since, locked, gone
        self._digest, self._noted = digest or "", noted
        self._show(now, system)
        return True

    # --- inside ---------------------------------------------------------------------------------------------------

    def _found(
        self, connection: Connection, before: Facts, now: Facts, place: int
    ) -> Iterator[tuple[str, UnloggedChange]]:
        for change in changes(before, now, self._gone):
            if change.unless_empty and not _have_rows(connection, change):
                continue
            by_truncate = change.files and not _are_rewritten(connection, before, now, change.table)
            if not by_truncate and not self._skips(change.table):
                _log.warning(
                    "rows of %s changed, and the log does not have them: %s. Next: `wormholectl backfill start APP "
                    "--tables %s` sends the rows that there are",
                    change.table,
                    ", ".join(change.why),
                    shlex.quote(change.table),
                )
            files = now.tables[change.table]["files"]
            since = min([self._since, *(self._locked[at] for at in map(int, files) if at in self._locked)])
            yield change.table, UnloggedChange(place, since, by_truncate)

    def _skips(self, table: str) -> bool:
        return skips(self._skipped, *table.split(".", 1))

    def _show(self, facts: Facts, system: str) -> None:
        """Let readers see :attr:`_noted`."""
        changes = {name: one for name, one in self._noted.items() if not self._skips(name)}
        names = {int(facts.tables[name]["oid"]): (one.place, name) for name, one in self._noted.items()}
        with self._lock:
            self._noticed, self._system = Noticed(changes, names), system

    def _keep(
        self,
        now: Facts,
        system: str,
        since: int,
        gone: Mapping[str, str],
        noted: Mapping[str, UnloggedChange],
    ) -> None:
        keep(
            self._state,
            DOCUMENT,
            {
                "system": system,
                "since": since,
                "tables": dict(now.tables),
                "known": dict(now.known),
                "gone": dict(gone),
                "noted": {name: [one.place, one.since, int(one.files)] for name, one in noted.items()},
            },
        )

    def _restore(self, known: Mapping[str, Any]) -> None:
        if not known:
            return
        self._facts = Facts(known["tables"], known["known"])
        self._gone, self._since = known["gone"], known["since"]
        self._noted = {
            name: UnloggedChange(place, since, bool(files)) for name, (place, since, files) in known["noted"].items()
        }
        self._show(self._facts, known["system"])


def _have_rows(connection: Connection, change: Change) -> bool:
    """Whether one of the tables in ``change.unless_empty`` may have rows."""
    sizes = ", ".join(f"pg_relation_size({number})" for number in change.unless_empty)
    try:
        connection.query("SET lock_timeout = '100ms'")
        ((*found,),) = connection.query(f"SELECT {sizes}")
    except ServerError:
        return True  # a table is locked, or was dropped
    finally:
        connection.query("SET lock_timeout = 0")
    return any(size not in {None, "0"} for size in found)


def _are_rewritten(connection: Connection, before: Facts, now: Facts, table: str) -> bool:
    """Whether a table with another file has rows that a statement wrote into that file without logging them.

    True for a locked table, which may have such rows. A dropped or unreadable table counts as truncated.
    """
    were = before.tables.get(table, {"files": {}})["files"]
    for number, (file, _) in now.tables[table]["files"].items():
        if number in were and were[number][0] == file:
            continue
        name = sql_name(*now.known[number].split(".", 1))
        try:
            connection.query("SET lock_timeout = '100ms'")
            if connection.query(_REWRITTEN.format(number=int(number), table=name)):
                return True
        except ServerError as error:
            if error.sqlstate == _LOCKED:
                return True
        finally:
            connection.query("SET lock_timeout = 0")
    return False


def _report_gone(name: str, number: str, now: Facts) -> None:
    schema, _, table = name.partition(".")
    if any(number in one["files"] for other, one in now.tables.items() if other != now.known.get(number)):
        what, step = (
            "is a partition now: applications keep its rows under this name",
            "nothing, or remove them there",
        )
    elif number not in now.known:
        what, step = "was dropped: applications keep its rows", "nothing, or remove them there"
    elif now.known[number] == name:
        what, step = (
            "is not in the log any more: it is UNLOGGED, or left the publication",
            f"ALTER TABLE {sql_name(schema, table)} SET LOGGED, or publish it; then start a backfill of it",
        )
    else:
        what, step = (
            f"was renamed to {now.known[number]}: applications keep its rows",
            "nothing, or remove them there",
        )
    _log.warning("the table %s %s. Next: %s", name, what, step)
