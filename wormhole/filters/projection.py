"""Limits the columns that an application receives (``columns``), and replaces values by a hash or NULL (``mask``).

:mod:`wormhole.wire.rewrite` makes the rest of an update from its encoded bytes, once for all flows with the same filter
and projection.
"""

from __future__ import annotations

import fnmatch
import hmac
import json
import re
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any, Final, NamedTuple

from google.protobuf.message import DecodeError as ProtobufDecodeError

from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import DecodeError, FilterError, ProtocolError
from wormhole.model.schema import Column, Schema
from wormhole.model.segment import Run
from wormhole.model.table_definition import ColumnDefinition, Content, TableDefinition
from wormhole.wire.rewrite import DROP, HASH, KEEP, NULL, rewritten
from wormhole.wire.rows import entry as body_entry
from wormhole.wire.rows import value_of
from wormhole.wire.v1 import update_pb2

__all__ = ["HASH_TYPE", "MaskKey", "Projection"]

HASH_TYPE: Final = "hash"
"""The type of a column of which only the hash is sent."""

_MASKS: Final = {"hash": HASH, "null": NULL}
_MAX_PLANS: Final = 4096
"""Limit of the tables whose plan is kept. It is more than a database has, and bounds memory when names keep
changing.
"""
_LEAST_KEY: Final = 32
_PLAIN: Final = b"\x0a\x12"  # `bytes` and `text` of Value
_CHECKED: Final = b"wormhole mask key"
_NOTHING: Final = frozenset((b"", b"\x40\x01", b"\x48\x01"))  # changed to an unknown value, NULL, unavailable


class MaskKey:
    """The secret with which values are hashed. ``repr`` does not reveal it.

    Raises ``ValueError`` for a secret that is too short.
    """

    __slots__ = ("_mac",)

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _LEAST_KEY:
            raise ValueError(f"has {len(secret)} bytes, at least {_LEAST_KEY} are needed")
        self._mac = hmac.new(secret, digestmod="sha256")

    @property
    def check(self) -> str:
        """Sixteen hexadecimal digits that two processes compare to check that they have the same key."""
        return self._digest(_CHECKED)[:16]

    def hashed(self, value: bytes) -> bytes:
        """The hash of a serialized ``Value``, as a serialized text ``Value``: the HMAC-SHA-256 of its text or bytes, in
        hexadecimal. NULL and values that are not in the log stay unchanged.

        Raises :class:`~wormhole.model.errors.DecodeError` for bytes that are no value.
        """
        if value in _NOTHING:
            return value
        if len(value) > 1 and value[0] in _PLAIN and value[1] == len(value) - 2 < 0x80:  # a short text or bytes alone
            return b"\x12\x40" + self._digest(value[2:]).encode()
        try:
            found = value_of(value)
        except (ProtobufDecodeError, ProtocolError) as error:
            # The error's own text may show the value, and operators without access to the data see a flow's cause.
            what = "invalid bytes" if isinstance(error, ProtobufDecodeError) else "not what its type says"
            raise DecodeError(f"a value that is to be hashed is damaged: {what}") from None
        match found:
            case bytes():
                content = found
            case str():
                content = found.encode()
            case bool():
                content = b"true" if found else b"false"
            case Decimal():
                content = format(found, "f").encode()
            case int() | float():
                content = str(found).encode()
            case _:  # a kind of a later release, or a value with several kinds
                content = value
        return b"\x12\x40" + self._digest(content).encode()

    def _digest(self, content: bytes) -> str:
        mac = self._mac.copy()  # a copy takes a third of the time of a new HMAC
        mac.update(content)
        return mac.hexdigest()


class _Plan(NamedTuple):
    """The form of one table's updates. ``codes``: one for each column; ``None``: they are sent unchanged."""

    schema: Schema
    codes: bytes | None


class _Entry(NamedTuple):
    """One entry of ``columns`` or ``mask``. ``exact``: it names one column, not a pattern."""

    text: str
    table: str
    matches: re.Pattern[str]
    exact: bool


@dataclass(frozen=True, slots=True)
class Projection:
    """The form in which an application receives the columns that are not part of a key. Immutable; make one with
    :meth:`parse`.

    ``text``: its meaning, equal for projections that mean the same; empty: everything is sent unchanged. ``key``: for
    hashes; a projection with hashes cannot be applied without it. The key is not part of ``text``.
    """

    columns: tuple[str, ...] = field(default=(), compare=False)
    mask: Mapping[str, str] = field(default_factory=dict, compare=False)
    key: MaskKey | None = field(default=None, repr=False, compare=False)
    text: str = field(init=False, repr=False)
    _kept: tuple[_Entry, ...] = field(init=False, repr=False, compare=False)
    _left_out: tuple[_Entry, ...] = field(init=False, repr=False, compare=False)
    _masked: tuple[tuple[_Entry, int], ...] = field(init=False, repr=False, compare=False)
    _plans: dict[int, _Plan] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        kept = tuple(_parsed("columns", one) for one in self.columns if not one.startswith("-"))
        left_out = tuple(_parsed("columns", one[1:]) for one in self.columns if one.startswith("-"))
        masked = tuple((_parsed("mask", one), _MASKS[how]) for one, how in self.mask.items())
        meaning: dict[str, Any] = {
            "columns": sorted({one.text for one in kept}),
            "without": sorted({one.text for one in left_out}),
            "mask": sorted({(entry.text, how) for entry, how in masked}),
        }
        written = {name: given for name, given in meaning.items() if given}
        text = json.dumps(written) if written else ""
        for name, value in (("text", text), ("_kept", kept), ("_left_out", left_out), ("_masked", masked)):
            object.__setattr__(self, name, value)

    @classmethod
    def parse(cls, columns: Sequence[str], mask: Mapping[str, str], key: MaskKey | None = None) -> Projection:
        """The projection of an application's configuration.

        Raises :class:`~wormhole.model.errors.FilterError`, which names the entry.
        """
        return cls(tuple(columns), dict(mask), key)

    def __bool__(self) -> bool:
        return bool(self.text)

    @property
    def hashes(self) -> bool:
        """Whether the projection needs a key."""
        return any(how == HASH for _, how in self._masked)

    def check(self, source: Capabilities) -> None:
        """Refuse a projection that is not possible for a source. Called when an application subscribes.

        Raises :class:`~wormhole.model.errors.FilterError`.
        """
        if not self:
            return
        setting = "mask" if self._masked else "columns"
        if source.of_bytes:
            raise FilterError(
                f"{setting}: an update of {source.title} has no columns: its value is bytes, which are sent whole",
                hint=f"remove {setting}; what is private can be left out with `tables` if it is in a table of its own",
            )
        if source.databases:
            for name, entry in self._entries():
                if entry.table in source.more_tables:
                    continue
                if entry.table and "." not in entry.table and not _is_pattern(entry.table):
                    raise FilterError(
                        f'{name}: no table is called "{entry.table}": tables of this source are "{source.table_name}"',
                        hint=f'write "{source.example_database}.{entry.text}" or "*.{entry.text}"',
                    )

    def unmatched(self, tables: Iterable[TableDefinition]) -> list[tuple[str, str]]:
        """Entries that name no column of these tables: each with its setting and its text."""
        names = [_folded(table.name, column.name) for table in tables for column in table.columns]
        return [
            (setting, entry.text)
            for setting, entry in self._entries()
            if not any(entry.matches.fullmatch(name) for name in names)
        ]

    def problem(self, table: str, key: Iterable[str]) -> DecodeError | None:
        """The error if updates of a table with this key cannot be projected; ``None`` if they can."""
        for column in key:
            name = _folded(table, column)
            for setting, entry in self._entries():
                refused = setting == "mask" or (entry in self._left_out and entry.exact)
                if refused and entry.matches.fullmatch(name):
                    return DecodeError(
                        f"{setting}: {entry.text} names {column}, a column of the key of {table}: the key shows which "
                        "row changed and keeps the order of its updates, so it is always sent as it is",
                        tables=(table,),
                        hint=f"remove {entry.text} from {setting}, or leave the table out with `tables`",
                    )
        return None

    def project(self, run: Run, kept: Sequence[int] | None) -> Run:
        """The run as the application receives it, with the updates ``kept`` (``None``: all). The other updates become
        empty.

        Raises :class:`~wormhole.model.errors.DecodeError` if it cannot be projected: a mask names a column of a table's
        key, or bytes are damaged.
        """
        if not self or not run.ends or (kept is not None and not kept):
            return run
        index = run.schema_index
        if len(run.schemas) == 1 or not index:
            used = {0}
        elif len(index) == 1:
            used = {index[0]}
        else:
            used = set(index) if kept is None else {index[i] for i in kept}
        plans = [self._plan(schema) if i in used else _Plan(schema, None) for i, schema in enumerate(run.schemas)]
        if all(plan.codes is None for plan in plans):
            return run
        blob, ends = rewritten(run.blob, run.ends, index, [plan.codes for plan in plans], kept, self._hashed)
        return replace(run, blob=blob, ends=ends, schemas=tuple(plan.schema for plan in plans))

    def project_row(self, schema: Schema, row: bytes) -> tuple[Schema, bytes]:
        """:meth:`project` for one update's bytes: the projected bytes and their schema."""
        plan = self._plan(schema)
        if plan.codes is None:
            return schema, row
        whole = body_entry(row)
        blob, _ = rewritten(whole, array("I", (len(whole),)), array("I"), [plan.codes], None, self._hashed)
        return plan.schema, update_pb2.BatchBody.FromString(blob).updates[0]

    def project_table(self, table: TableDefinition) -> TableDefinition:
        """The table as the application receives it.

        Raises :class:`~wormhole.model.errors.FilterError` for a mask on a column of its key.
        """
        if (problem := self.problem(table.name, table.key)) is not None:
            raise FilterError(problem.message, hint=problem.hint, code=problem.code)
        codes = [
            KEEP if column.name in table.key else self._code(table.name, Column(column.name, "text"))
            for column in table.columns
        ]
        columns = tuple(
            _received(column, code) for column, code in zip(table.columns, codes, strict=True) if code != DROP
        )
        return replace(table, columns=columns)

    def _entries(self) -> list[tuple[str, _Entry]]:
        listed = [("columns", entry) for entry in (*self._kept, *self._left_out)]
        return listed + [("mask", entry) for entry, _ in self._masked]

    def _hashed(self, value: bytes) -> bytes:
        if self.key is None:
            raise DecodeError("a mask needs the key of hashes", hint="name its file as mask_key_file under [publisher]")
        return self.key.hashed(value)

    def _plan(self, schema: Schema) -> _Plan:
        plan = self._plans.get(schema.id)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[schema.id] = self._make_plan(schema)
        return plan

    def _make_plan(self, schema: Schema) -> _Plan:
        problem = self.problem(schema.table, (column.name for column in schema.key))
        if problem is not None:
            raise problem
        # A server's schema has the columns of the key among the others, too.
        key = {column.name for column in schema.key}
        codes = bytes(KEEP if column.name in key else self._code(schema.table, column) for column in schema.columns)
        if not any(codes):
            return _Plan(schema, None)
        columns = tuple(
            replace(column, type=HASH_TYPE) if code == HASH else column
            for column, code in zip(schema.columns, codes, strict=True)
            if code != DROP
        )
        return _Plan(Schema(schema.table, schema.key, columns), codes)

    def _code(self, table: str, column: Column) -> int:
        name = _folded(table, column.name)
        if self._kept and not any(entry.matches.fullmatch(name) for entry in self._kept):
            return DROP
        if any(entry.matches.fullmatch(name) for entry in self._left_out):
            return DROP
        found = {how for entry, how in self._masked if entry.matches.fullmatch(name)}
        if NULL in found:
            return NULL
        # A column that is a hash already was hashed before its update was parked.
        return HASH if found and column.type != HASH_TYPE else KEEP


def _received(column: ColumnDefinition, code: int) -> ColumnDefinition:
    if code == HASH:
        return replace(column, content=Content.TEXT, members=())
    return replace(column, nullable=column.nullable or code == NULL)


def _is_pattern(text: str) -> bool:
    return not set("*?[").isdisjoint(text)


def _folded(table: str, column: str) -> str:
    # Databases accept a column's name in any case, so a mask that is written in another case has to apply.
    return f"{table}.{column}".casefold()


def _parsed(setting: str, text: str) -> _Entry:
    table, _, column = text.rpartition(".")
    if not column or text.startswith((".", "-")):
        raise FilterError(
            f"{setting}: {text!r} names no column",
            hint='write "COLUMN" for a column of every table, or "TABLE.COLUMN"; both may be patterns, "shop.users.*"',
        )
    pattern = fnmatch.translate(f"{table or '*'}.{column}".casefold())
    return _Entry(text.casefold(), table, re.compile(pattern), not _is_pattern(column))
