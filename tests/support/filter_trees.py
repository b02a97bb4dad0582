"""Random filters, and the slow and plain reading of one that the fast evaluation is compared with."""

from __future__ import annotations

import fnmatch
import operator
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, cast

from hypothesis import strategies as st

from wormhole.filters import tree
from wormhole.formats import ABSENT, COMPOSITE
from wormhole.model.schema import Schema
from wormhole.model.values import UNAVAILABLE, Op, Value
from wormhole.wire.rows import decode_row, encode_row

# Few letters, so that prefixes, ranges and equal keys happen.
keys = st.binary(max_size=4).map(lambda raw: bytes(b"ab\x00\xff"[byte % 4] for byte in raw))
_words = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
names = ["email", "k1", "k2", "or", "two words", "a`b", "é"]
_names = st.sampled_from(names)
_fields = st.one_of(_names.map(tree.Field), st.builds(tree.Field, _names, st.sampled_from([("k1",), ("or", "email")])))
_subjects = st.one_of(st.just(tree.WholeKey()), st.integers(0, 2).map(tree.KeyPart), _fields, _fields)
_numbers = st.one_of(
    st.integers(-3, 3),
    st.integers(-(10**30), 10**30),
    st.decimals(-3, 3, places=2),
)
_bytes_or_text = st.one_of(keys, _words, st.sampled_from(["a", "ab"]))
_literals = st.one_of(_bytes_or_text, _numbers, st.booleans())
_orders: st.SearchStrategy[tree.Order] = st.sampled_from(["==", "<", "<=", ">", ">="])


def _few(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, min_size=1, max_size=3).map(tuple)


_hashes = st.integers(1, 5).flatmap(
    lambda modulus: st.builds(tree.HashIn, st.just(modulus), _few(st.integers(0, modulus - 1)))
)
_leaves: st.SearchStrategy[tree.Expr] = st.one_of(
    st.builds(tree.Const, st.booleans()),
    st.builds(tree.TableIn, _few(st.sampled_from(["shop.users", "shop.orders", "x"]))),
    st.builds(tree.TableMatches, _few(st.sampled_from(["shop.*", "*", "?", "shop.[uv]sers"]))),
    st.builds(tree.OpIn, _few(st.sampled_from(list(Op)))),
    st.builds(tree.Compare, _subjects, _orders, st.one_of(_bytes_or_text, _numbers)),
    st.builds(tree.Compare, _subjects, st.just("=="), st.booleans()),
    st.builds(tree.In, _subjects, st.one_of(_few(_bytes_or_text), _few(_numbers), _few(st.booleans()))),
    st.builds(tree.StartsWith, _subjects, _bytes_or_text),
    _hashes,
    st.builds(tree.Is, _subjects, st.sampled_from(["null", "absent"])),
    st.builds(tree.Changed, _fields),
)
leaves: st.SearchStrategy[tree.Expr] = st.one_of(_leaves, _leaves.map(tree.Not))
"""Single tests, and their opposites."""
_moved = st.builds(tree.Moved, st.sampled_from(["entered", "left"]))


def _branches(inner: st.SearchStrategy[tree.Expr]) -> st.SearchStrategy[tree.Expr]:
    terms = st.lists(inner, min_size=2, max_size=3).map(tuple)
    return st.one_of(inner.map(tree.Not), terms.map(tree.And), terms.map(tree.Or))


expressions: st.SearchStrategy[tree.Expr] = st.recursive(_leaves, _branches, max_leaves=8)
"""Any tree that can be written, but for ``entered`` and ``left``."""

any_expressions: st.SearchStrategy[tree.Expr] = st.recursive(st.one_of(_leaves, _moved), _branches, max_leaves=8)

# --- what a filter means, word by word of docs/filters.md: True, False, or None for unknown ---------------------------

_ORDERS = {"==": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


@dataclass
class State:
    """A row at one side of a change: its key, and what is known of its values (``None``: nothing)."""

    key: Sequence[Value]
    values: Mapping[str, Any] | None = None


def outcome(
    expr: tree.Expr, schema: Schema, op: Op, before: State, after: State, document: bool = False
) -> tuple[bool, str]:
    """Whether a plain update is delivered, and how it is marked. ``document``: the values are fields of one value."""

    def may(state: State) -> bool:
        return passes(expr, schema, op, state.key, state.values, (before, after), document) is not False

    if op in (Op.INSERT, Op.MERGE, Op.READ):
        return may(after), ""
    if op is Op.DELETE:
        return may(before), ""
    was, now = may(before), may(after)
    return was or now, "" if was == now else "entered" if now else "left"


def passes(
    expr: tree.Expr,
    schema: Schema,
    op: Op,
    key: Sequence[Value],
    values: Mapping[str, Any] | None = None,
    sides: tuple[State, State] | None = None,
    document: bool = False,
) -> bool | None:
    """Whether a plain update passes on one side of the change; ``None`` where nobody can tell."""

    def again(term: tree.Expr) -> bool | None:
        return passes(term, schema, op, key, values, sides, document)

    def found(subject: tree.Subject) -> Any:
        return _found(subject, schema, key, values, document)

    match expr:
        case tree.Const(value):
            return value
        case tree.Not(term):
            inner = again(term)
            return None if inner is None else not inner
        case tree.And(terms):
            seen = [again(term) for term in terms]
            return False if False in seen else None if None in seen else True
        case tree.Or(terms):
            seen = [again(term) for term in terms]
            return True if True in seen else None if None in seen else False
        case tree.TableIn(names):
            return schema.table in names
        case tree.TableMatches(patterns):
            return any(fnmatch.fnmatchcase(schema.table, pattern) for pattern in patterns)
        case tree.OpIn(ops):
            return op in ops
        case tree.HashIn(modulus, remainders):
            return zlib.crc32(_hashed(key)) % modulus in remainders if key else None
        case tree.Is(subject, what):
            value = found(subject)
            return None if value is UNAVAILABLE else value is (None if what == "null" else ABSENT)
        case tree.Compare(subject, order, literal):
            value = found(subject)
            if value is None:
                return False if order == "==" else None
            pair = _pair(value, literal)
            return None if pair is None else _ORDERS[order](*pair)
        case tree.In(subject, literals):
            value = found(subject)
            pairs = [_pair(value, literal) for literal in literals]
            return False if value is None else None if None in pairs else any(p[0] == p[1] for p in pairs if p)
        case tree.StartsWith(subject, prefix):
            value = found(subject)
            pair = _pair(value, prefix)
            return False if value is None else None if pair is None else cast(bytes, pair[0]).startswith(pair[1])
        case tree.Changed(subject):
            return _changed(subject, schema, op, sides, document)
        case _:
            return None


def _changed(
    subject: tree.Field, schema: Schema, op: Op, sides: tuple[State, State] | None, document: bool
) -> bool | None:
    if op in (Op.INSERT, Op.DELETE):
        return True
    if sides is None or sides[0].values is None or sides[1].values is None:
        return None
    if not document and (subject.path or subject.name not in [c.name for c in schema.columns]):
        return None
    if not document and subject.name in [c.name for c in schema.key]:
        return None
    old, new = (_found(subject, schema, (), side.values, document) for side in sides)
    if old is UNAVAILABLE or new is UNAVAILABLE:
        return None
    return repr(old) != repr(new) and old is not new


def _hashed(key: Sequence[Value]) -> bytes:
    if len(key) == 1 and isinstance(key[0], bytes):
        return key[0]
    return b"".join(value.SerializeToString() for value in decode_row(encode_row(Op.DELETE, key)).key)


def _found(
    subject: tree.Subject, schema: Schema, key: Sequence[Value], values: Mapping[str, Any] | None, document: bool
) -> Any:
    """The value that a subject means; ``UNAVAILABLE`` where nobody can tell."""
    columns = [column.name for column in schema.key]
    index = None
    match subject:
        case tree.WholeKey():
            index = 0 if len(columns) == 1 else None
        case tree.KeyPart(number):
            index = number
        case tree.Field(name, path):
            if document:
                at: Any = UNAVAILABLE if values is None else values
                for part in subject.parts if values is not None else ():
                    at = at.get(part, ABSENT) if isinstance(at, dict) else ABSENT
                return COMPOSITE if isinstance(at, dict | list) else at
            if not path and name in columns:
                index = columns.index(name)
            elif not path and values is not None and name in [c.name for c in schema.columns]:
                return values[name]
    return UNAVAILABLE if index is None or index >= len(columns) or index >= len(key) else key[index]


def _pair(value: Any, literal: tree.Literal) -> tuple[Any, Any] | None:
    if isinstance(literal, str | bytes):
        return (_utf8(value), _utf8(literal)) if isinstance(value, str | bytes) else None
    if isinstance(literal, bool) or isinstance(value, bool):
        return (value, literal) if isinstance(literal, bool) and isinstance(value, bool) else None
    if not isinstance(value, int | float | Decimal) or value != value:
        return None
    return value, float(literal) if isinstance(value, float) and isinstance(literal, Decimal) else literal


def _utf8(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value
