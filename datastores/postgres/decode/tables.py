"""Keeps the tables that a reader meets in the log: their schemas, keys and shards.

Relation messages describe the columns of the rows that follow. So rows are read with the columns that the table had
when they were written. Names are ``schema.table``. Shards: the whole log, one per schema (``log.schema``), one per
table (``log.schema.table``) or N by the hash of the key. With N shards, a table without a key has its own shard.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import Final

from datastores.common.encode.piece import ALL_SHARDS, HASHED
from datastores.postgres.decode.catalogue_keys import CatalogueKey, KeyPlaces, LoggedKeys, places_of
from datastores.postgres.decode.encodings import UTF8, Encoding
from datastores.postgres.decode.kinds import SCHEMA_TYPES, TEXT, kind_of
from datastores.postgres.decode.messages import FULL, MESSAGES, NOTHING, Relation, TypeName
from datastores.postgres.decode.table import Table
from datastores.postgres.sql_text import sql_name
from wormhole.model.errors import DecodeError, SourceUnavailable
from wormhole.model.schema import Column, Schema
from wormhole.model.sharding import Sharding, hash_shards, shard_of_table

__all__ = ["FindKey", "FindLoggedKeys", "Tables", "shard_name", "skips"]

_MESSAGE_COLUMNS: Final = (Column("prefix", "text"), Column("content", "bytes"), Column("transactional", "bool"))

FindKey = Callable[[Relation, int], CatalogueKey | None]
"""Returns a table's present columns and primary key in the catalogue; ``None``: the table does not exist. Called if the
log does not contain the key (REPLICA IDENTITY FULL and NOTHING), with the LSN of the decoded transaction's commit."""

FindLoggedKeys = Callable[[], tuple[int, LoggedKeys]]
"""Returns facts about all tables' keys that the log does not show, and a place. The facts hold for transactions that
committed before the place. Called for a table whose key the log should contain, in a transaction that committed after
the last result's place."""

_AFTER_ALL: Final = 1 << 64
_MOST_BYTES: Final = 64 << 20
_TABLE_COST: Final = 2000
_COLUMN_COST: Final = 400
_NAME_COST: Final = 400


def shard_name(log: str, sharding: Sharding, schema: str, table: str) -> str:
    """The shard of a table that is not split by the hash of its key."""
    if sharding.by == "log":
        return log
    if not schema:
        return shard_of_table(log, table)
    of_schema = shard_of_table(log, schema)
    return of_schema if sharding.by == "database" else shard_of_table(of_schema, table)


def skips(skipped: Set[str], schema: str, table: str) -> bool:
    """Whether ``skip_tables`` names the table, or its whole schema as ``schema.*``."""
    return f"{schema}.{table}" in skipped or f"{schema}.*" in skipped


class Tables:
    """``schemas`` and ``shards`` are the arguments of `runs_of`. ``skipped``: tables whose rows are skipped and break
    no shard; ``schema.*``: the whole schema. ``find_key`` and ``find_logged`` query the catalogue; ``None``: a table
    has no key unless the log contains it, and keys are complete and unique. ``encoding``: of names and values.
    ``truncated``: by table name, the LSN of the commit that last truncated the table.

    Descriptions are never removed. When they take 64 MiB the reader ends, and the next reader begins without any."""

    def __init__(
        self,
        log: str,
        sharding: Sharding,
        skipped: frozenset[str] = frozenset(),
        find_key: FindKey | None = None,
        find_logged: FindLoggedKeys | None = None,
        encoding: Encoding = UTF8,
    ) -> None:
        self.encoding = encoding
        self.schemas: list[Schema] = []
        self.shards: dict[int, str] = {}
        self.truncated: dict[str, int] = {}
        self._log = log
        self._sharding = sharding
        self._skipped = skipped
        self._find_key = find_key
        self._find_logged = find_logged
        self._logged = LoggedKeys()  # valid for transactions that committed before the place below
        self._logged_until = 0
        self._found_keys: dict[int, KeyPlaces] = {}  # the last result for each table whose key is not in the log
        self._types: dict[int, tuple[str, str]] = {}
        self._numbers: set[int] = set()  # numbers of the known tables
        self._room = _MOST_BYTES
        self._schema_ordinals: dict[Schema, int] = {}
        self._shard_ordinals: dict[str, int] = {}
        self._broken: dict[str, tuple[int, DecodeError]] = {}
        if sharding.by == "hash":
            for shard in hash_shards(log, sharding.count):
                self._shard(shard)
        elif sharding.by == "log":
            self._shard(log)

    def learn_type(self, found: TypeName) -> None:
        """Add a type from its message, which precedes the Relation messages that need it."""
        if self._types.get(found.id) != (found.schema, found.name):
            self._use(_NAME_COST + len(found.schema) + len(found.name))
        self._types[found.id] = (found.schema, found.name)

    def learn(self, relation: Relation, commit: int = 0) -> Table:
        """Add a table from its Relation message, which describes the rows after it. ``commit``: LSN of the commit of
        the message's transaction."""
        columns = relation.columns
        if relation.id not in self._numbers:
            self._use(_TABLE_COST)
            self._numbers.add(relation.id)
        kinds = [kind_of(column.type, self._types.get(column.type)) for column in columns]
        skipped = skips(self._skipped, relation.schema, relation.table)
        key, error = ((), None) if skipped else self._key(relation, commit)
        repeated = relation.identity not in {FULL, NOTHING} and relation.id in self._logged.repeated
        typed = tuple(Column(column.name, SCHEMA_TYPES[kind]) for column, kind in zip(columns, kinds, strict=True))
        own = shard_name(self._log, self._sharding, relation.schema, relation.table)
        hashed = self._sharding.by == "hash" and bool(key)
        return Table(
            relation.name,
            [column.name for column in columns],
            kinds,
            [column.is_key for column in columns],
            key,
            schema=self._schema(Schema(relation.name, tuple(typed[i] for i in key), typed)),
            shard=HASHED if hashed else self._shard(own),
            # A barrier has no values. Its schema has no columns, so it is the same wherever reading began.
            barrier_schema=self._schema(Schema(relation.name, (), ())),
            barrier_shard=ALL_SHARDS if hashed else self._shard(own),
            skipped=skipped,
            error=error,
            inserts=repeated,
            to_utf8=None if self.encoding.is_utf8 else self.encoding.to_utf8,
        )

    def messages(self) -> Table:
        """The table under which logical messages are delivered."""
        schema, shard = Schema(MESSAGES, (), _MESSAGE_COLUMNS), shard_name(self._log, self._sharding, "", MESSAGES)
        ordinal = self._shard(shard)
        return Table(
            MESSAGES,
            [column.name for column in _MESSAGE_COLUMNS],
            [TEXT] * len(_MESSAGE_COLUMNS),
            [False] * len(_MESSAGE_COLUMNS),
            (),
            schema=self._schema(schema),
            shard=ordinal,
            barrier_schema=0,
            barrier_shard=ordinal,
            skipped=MESSAGES in self._skipped,
        )

    def break_at(self, table: Table, commit: int, error: DecodeError) -> None:
        """Halt the shards of a table because of an unreadable row. ``commit``: LSN of the transaction's commit."""
        shards = [self.shards[table.shard]] if table.shard in self.shards else self.hashed
        for shard in shards:
            self._broken.setdefault(shard, (commit, error))

    def take_broken(self, before: int = _AFTER_ALL) -> dict[str, DecodeError]:
        """The shards that break in transactions that committed before this LSN, with the reason, once each."""
        found = {shard: error for shard, (commit, error) in self._broken.items() if commit < before}
        for shard in found:
            del self._broken[shard]
        return found

    @property
    def hashed(self) -> list[str]:
        """The shards of tables that are split by the hash of their key."""
        return [self.shards[k] for k in range(self._sharding.count)]

    def _key(self, relation: Relation, commit: int) -> tuple[tuple[int, ...], DecodeError | None]:
        """The positions of the key's columns, and the error if the key is unknown."""
        if relation.identity not in {FULL, NOTHING}:
            self._found_keys.pop(relation.id, None)  # the key may now change unnoticed
            key = tuple(i for i, column in enumerate(relation.columns) if column.is_key)
            return self._logged_key(relation, key, commit)
        if self._find_key is None:
            return (), None
        found = self._find_key(relation, commit)
        if found is None and relation.identity == NOTHING:
            return (), None  # only inserts are in the log, and they need no key
        if found is None:
            return (), _unknown_key(relation, "the catalogue does not have the table any more")
        places = places_of(relation, found, self._found_keys.get(relation.id))
        if places.problem:
            return (), _unknown_key(relation, places.problem)
        self._found_keys[relation.id] = places
        return places.places, None

    def _logged_key(
        self, relation: Relation, key: tuple[int, ...], commit: int
    ) -> tuple[tuple[int, ...], DecodeError | None]:
        """The positions of the key's columns in the log, and the error if the key is incomplete or not unique."""
        if self._find_logged is not None and commit >= self._logged_until:
            self._logged_until, self._logged = self._find_logged()
        if relation.id in self._logged.repeated:
            return (), _repeated_key(relation)
        there = {column.name for column in relation.columns}
        missing = [name for name in self._logged.generated.get(relation.id, ()) if name not in there]
        if not missing:
            return key, None
        return key, DecodeError(
            f"the key of {relation.name} has the generated column {missing[0]}, which the server leaves out of the log",
            hint="give the table a key without it, or from PostgreSQL 18 on publish it "
            "(publish_generated_columns = stored); or name the table in skip_tables and restart the publisher",
            tables=(relation.name,),
        )

    def _schema(self, schema: Schema) -> int:
        ordinal = self._schema_ordinals.setdefault(schema, len(self.schemas))
        if ordinal == len(self.schemas):
            names = sum(len(column.name) for column in schema.columns)
            self._use(_NAME_COST + len(schema.table) + _COLUMN_COST * len(schema.columns) + names)
            self.schemas.append(schema)
        return ordinal

    def _shard(self, name: str) -> int:
        ordinal = self._shard_ordinals.setdefault(name, len(self._shard_ordinals))
        if ordinal not in self.shards:
            self._use(_NAME_COST + 2 * len(name))
            self.shards[ordinal] = name
        return ordinal

    def _use(self, size: int) -> None:
        self._room -= size
        if self._room < 0:
            raise SourceUnavailable(
                f"the log describes {len(self._numbers)} tables, {len(self.schemas)} forms of them and "
                f"{len(self._types)} types, which take more than {_MOST_BYTES >> 20} MiB",
                hint="it is opened again, and begins without them; if that repeats itself, check that the address "
                "leads to a PostgreSQL server, with nothing in between, and that no transaction writes to thousands "
                "of tables",
            )


def _repeated_key(relation: Relation) -> DecodeError:
    """The error for a key that two rows may share. A changed row has no other identity in the log."""
    return DecodeError(
        f"the key of {relation.name} does not identify a row: a partition lacks it, or has it DEFERRABLE, so two rows "
        "may have equal keys",
        hint="give each partition the key, not deferrable, and attach its index to the root's; or log whole rows: "
        f"ALTER TABLE {sql_name(relation.schema, relation.table)} REPLICA IDENTITY FULL; for what is logged already, "
        "name the table in skip_tables "
        "and restart the publisher",
        tables=(relation.name,),
    )


def _unknown_key(relation: Relation, what: str) -> DecodeError:
    return DecodeError(
        f"the key of {relation.name} is not known: its REPLICA IDENTITY was "
        f"{'FULL' if relation.identity == FULL else 'NOTHING'} when this was logged, and {what}",
        hint="name the table in skip_tables, restart the publisher, and bring the application's rows of it up to date; "
        f"for what is logged from now on: ALTER TABLE {sql_name(relation.schema, relation.table)} REPLICA IDENTITY "
        "DEFAULT; (or USING INDEX ...), "
        "with which the log has the key",
        tables=(relation.name,),
    )
