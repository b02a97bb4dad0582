"""The catalogue's facts about each published table, and the row changes that only they show. Pure.

The log has no DDL. A statement that rewrites a table's rows, or changes the meaning of their stored bytes, logs none of
the rows. But it changes the catalogue: the file that holds the rows (``relfilenode``), the partitions, the columns, the
key, a type, or the publication. So the comparison of two readings of the catalogue shows such a statement.

No query here takes a lock, because a waiting ``ALTER TABLE`` must not block the publisher.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final

from datastores.postgres.decode.kinds import kind_of
from datastores.postgres.server.key_indexes import KEY_INDEX
from datastores.postgres.server.versions import FILTERS_SINCE, GENERATED_SINCE
from datastores.postgres.sql_text import quote_literal

__all__ = ["Change", "Facts", "changes", "facts_of", "question"]

_PARTITIONED: Final = "p"
_PERMANENT: Final = "p"
_SYSTEM: Final = "n.nspname !~ '^pg_' AND n.nspname <> 'information_schema'"
# A partitioned table has no rows, so it has no stored value for rows older than a column.
_COLUMNS: Final = """(SELECT json_agg(json_build_array(a.attnum, a.attname, a.atttypid::bigint, a.attgenerated,
  a.atthasmissing OR c.relkind = 'p' AND a.atthasdef) ORDER BY a.attnum) FROM pg_attribute a
  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)"""
# `m`: the transaction and the command that created the table. If another command last wrote a column without a default,
# that column was altered. ATTACH PARTITION alters all columns.
_ALTERED: Final = """c.relispartition AND coalesce((SELECT bool_and((a.xmin::text, a.cmin::text)
  <> (m.xmin::text, m.cmin::text)) FROM pg_attribute a JOIN pg_attribute m ON m.attrelid = a.attrelid AND m.attnum = -1
  WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.atthasdef AND NOT a.attisdropped), true)"""
_IS_KEY: Final = f"i.indrelid = c.oid AND {KEY_INDEX}"
_KEY: Final = f"""(SELECT json_agg(k.number ORDER BY k.number) FROM pg_index i
  CROSS JOIN unnest(i.indkey::int2[]) WITH ORDINALITY AS k (number, at)
  WHERE k.at <= i.indnkeyatts AND {_IS_KEY})"""  # noqa: S608
_LATE: Final = f"""coalesce((SELECT bool_or(a.xmin::text <> m.xmin::text) FROM pg_index i
  JOIN pg_attribute a ON a.attrelid = i.indexrelid JOIN pg_attribute m ON m.attrelid = i.indrelid AND m.attnum = -1
  WHERE {_IS_KEY}), false)"""  # noqa: S608
_TYPES: Final = """(SELECT json_object_agg(t.oid::text, CASE t.typtype
  WHEN 'e' THEN (SELECT json_object_agg(e.oid::text, e.enumlabel) FROM pg_enum e WHERE e.enumtypid = t.oid)
  WHEN 'd' THEN to_json(t.typbasetype)
  WHEN 'r' THEN (SELECT to_json(r.rngsubtype) FROM pg_range r WHERE r.rngtypid = t.oid)
  WHEN 'c' THEN (SELECT json_agg(json_build_array(a.attnum, a.atttypid) ORDER BY a.attnum) FROM pg_attribute a
    WHERE a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped)
  ELSE to_json(t.typelem) END ORDER BY t.oid)
  FROM pg_type t WHERE t.oid >= 16384 AND (t.typtype IN ('e', 'd', 'r', 'c') OR t.typelem <> 0))"""


def question(version: int, publication: str) -> str:
    """The SQL expression for the JSON text that :func:`facts_of` reads. ``version``: the server's.

    The text contains ``sends``, ``identity`` and ``inherited`` so that it also changes whenever
    `datastores.postgres.tables.identities.read_tables` would find other tables published or refused.
    """
    filters = version >= FILTERS_SINCE
    mine = f"(SELECT p.oid FROM pg_publication p WHERE p.pubname = {quote_literal(publication)})"  # noqa: S608
    cut = "md5(r.prqual::text), r.prattrs::text" if filters else "NULL, NULL"
    listed = (
        f"(SELECT json_build_array({cut}) FROM pg_publication_rel r WHERE r.prpubid = {mine} AND r.prrelid = c.oid)"  # noqa: S608
    )
    schemas = f"SELECT s.pnnspid FROM pg_publication_namespace s WHERE s.pnpubid = {mine}" if filters else "SELECT 0"  # noqa: S608
    generated = ", p.pubgencols" if version >= GENERATED_SINCE else ""
    return f"""json_build_object(
'sends', (SELECT json_build_array(p.pubupdate, p.pubdelete) FROM pg_publication p WHERE p.oid = {mine}),
'publication', (SELECT json_build_array(p.puballtables, p.pubviaroot{generated}) FROM pg_publication p
  WHERE p.oid = {mine}),
'types', {_TYPES},
'tables', (SELECT json_agg(json_build_object('oid', c.oid, 'name', n.nspname || '.' || c.relname, 'kind', c.relkind,
  'identity', c.relreplident, 'inherited', c.relhassubclass,
  'persistence', c.relpersistence, 'file', c.relfilenode::bigint, 'place', json_build_array(c.reltablespace, c.relam),
  'parent', (SELECT i.inhparent FROM pg_inherits i WHERE i.inhrelid = c.oid AND c.relispartition),
  'altered', {_ALTERED}, 'late', {_LATE}, 'columns', {_COLUMNS}, 'key', {_KEY}, 'listed', {listed},
  'in_schema', c.relnamespace IN ({schemas})) ORDER BY c.oid)
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p') AND {_SYSTEM}))"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class Facts:
    """``tables``: the published tables by name, each with the JSON facts that determine its rows. ``known``: the names
    of all tables by OID. ``named``: the tables that the publication lists by name. ``altered``: OIDs of partitions
    whose columns were altered after their creation. ``late``: OIDs of tables whose key was created by a later
    transaction than the table.
    """

    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    known: Mapping[str, str] = field(default_factory=dict)
    named: Set[str] = frozenset()
    altered: Set[str] = frozenset()
    late: Set[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Change:
    """A change of the rows of ``table``. ``why``: what happened. ``files``: only the files of the rows changed; a
    TRUNCATE also does that, but is in the log. ``unless_empty``: OIDs of tables; if all of them are empty, no row
    changed.
    """

    table: str
    why: tuple[str, ...]
    files: bool = False
    unless_empty: tuple[str, ...] = ()


def facts_of(answer: Mapping[str, Any]) -> Facts:
    """Read the JSON of :func:`question`. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for any other text."""
    rows = {str(row["oid"]): row for row in answer["tables"] or ()}
    known = {number: str(row["name"]) for number, row in rows.items()}
    altered = frozenset(number for number, row in rows.items() if row["altered"])
    late = frozenset(number for number, row in rows.items() if row["late"])
    if answer["publication"] is None:
        return Facts({}, known, frozenset(), altered, late)
    everything, by_root, *generated = answer["publication"]
    below: dict[str, list[str]] = {}
    for number, row in rows.items():
        if row["parent"] is not None:
            below.setdefault(str(row["parent"]), []).append(number)
    tables: dict[str, Mapping[str, Any]] = {}
    named = set()
    for number, row in rows.items():
        line = list(_line(rows, number))
        has = [one for one in line if _names(rows[one], everything)]
        root = has[-1] if has and by_root else number
        if not has or root != number or (row["kind"] == _PARTITIONED and not by_root):
            continue
        leaves = dict(_leaves(rows, below, number))
        if not leaves and row["persistence"] != _PERMANENT:
            continue
        if row["listed"] is not None:
            named.add(row["name"])
        tables[row["name"]] = {
            "oid": number,
            "columns": {str(at): [name, kind, *rest] for at, name, kind, *rest in row["columns"] or ()},
            "types": _types(answer["types"] or {}, (column[2] for column in row["columns"] or ())),
            "key": row["key"] or [],
            "files": leaves,
            "cut": [*(row["listed"] or (None, None)), *generated],
        }
    return Facts(tables, known, named, altered, late)


def changes(before: Facts, now: Facts, gone: Mapping[str, str]) -> Iterator[Change]:
    """The row changes of published tables between two readings that are not in the log. ``gone``: OIDs, by name, of
    published tables that did not exist any more at the first reading.
    """
    for name, table in now.tables.items():
        old = before.tables.get(name)
        number = table["oid"]
        if old is not None and old["oid"] == number:
            yield from _compared(name, old, table, before, now)
            continue
        was = before.known.get(number)
        if was is not None and was != name:
            yield Change(name, (f"the table {was} was renamed to it",))
        elif old is not None or gone.get(name, number) != number:
            yield Change(name, ("another table took its name",))
        elif was is not None or name in now.named:
            yield Change(name, ("it is in the publication from now on",))
        elif attached := [leaf for leaf in table["files"] if leaf != number and _is_attached(leaf, before, now)]:
            yield Change(name, ("a table was attached as a partition",), unless_empty=tuple(attached))
        elif number in now.late:
            yield Change(name, ("its key is younger than it",), unless_empty=(number,))
        elif table["files"].get(number, [int(number)])[0] != int(number):  # a new table's file has its number
            yield Change(name, ("its rows were written anew",), files=True)


def _compared(
    name: str, old: Mapping[str, Any], table: Mapping[str, Any], before: Facts, now: Facts
) -> Iterator[Change]:
    files, were = table["files"], old["files"]
    why = [*_columns(old, table)]
    if old["key"] != table["key"]:
        why.append("its key has other columns")
    if any(label != table["types"].get(part, label) for part, label in old["types"].items()):
        why.append("a type of its columns was altered")
    if old["cut"] != table["cut"]:
        why.append("the publication has other rows or columns of it")
    if were.keys() - files.keys():
        why.append("a partition was detached or dropped")
    attached = tuple(leaf for leaf in files.keys() - were.keys() if _is_attached(leaf, before, now))
    anew = any(leaf in were and files[leaf][0] != were[leaf][0] and files[leaf][1] == were[leaf][1] for leaf in files)
    if anew:
        why.append("its rows were written anew")
    if why:
        yield Change(name, tuple(why), files=anew and len(why) == 1 and not attached)
    elif attached:
        yield Change(name, ("a table was attached as a partition",), unless_empty=attached)


def _columns(old: Mapping[str, Any], table: Mapping[str, Any]) -> Iterator[str]:
    for at, (name, kind, generated, missing) in table["columns"].items():
        was = old["columns"].get(at)
        if was is None:
            if missing:
                yield f"the column {name} was added with a default"
        elif was[0] != name:
            yield f"the column {was[0]} was renamed to {name}"
        elif kind_of(was[1], None) != kind_of(kind, None):
            yield f"the column {name} has another type"
        elif was[2] != generated:
            yield f"the column {name} is {'generated' if generated else 'not generated any more'}"


def _is_attached(leaf: str, before: Facts, now: Facts) -> bool:
    """Whether a partition was a separate table before."""
    return leaf in before.known or leaf in now.altered


def _line(rows: Mapping[str, Mapping[str, Any]], number: str) -> Iterator[str]:
    """A table and its ancestors in the partition tree, root last."""
    at: str | None = number
    while at is not None and at in rows:
        yield at
        parent = rows[at]["parent"]
        at = None if parent is None else str(parent)


def _names(row: Mapping[str, Any], everything: bool) -> bool:
    return bool(everything or row["listed"] is not None or row["in_schema"])


def _leaves(
    rows: Mapping[str, Mapping[str, Any]], below: Mapping[str, list[str]], number: str
) -> Iterator[tuple[str, list[Any]]]:
    row = rows[number]
    if row["kind"] != _PARTITIONED:
        if row["persistence"] == _PERMANENT:
            yield number, [row["file"], row["place"]]
        return
    for one in below.get(number, ()):
        yield from _leaves(rows, below, one)


def _types(types: Mapping[str, Any], wanted: Iterable[int]) -> dict[str, Any]:
    """The facts that determine the text of values, by type, for types that are not built in and for their
    components."""
    found: dict[str, Any] = {}
    left = [str(one) for one in wanted]
    while left:
        number = left.pop()
        made = types.get(number)
        if made is None or number in found:
            continue
        found[number] = made if isinstance(made, list) else None
        if isinstance(made, Mapping):
            found |= {f"{number}.{label}": text for label, text in made.items()}
        elif isinstance(made, list):
            left += [str(kind) for _, kind in made]
        else:
            left.append(str(made))
    return found
