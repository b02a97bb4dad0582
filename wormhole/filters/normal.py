"""The normal form of a filter: its meaning, independent of how it was written.

Only single tests are negated. Nested ``and`` and ``or`` are flat, without repeats and in a fixed order. Constants are
folded, text is bytes, lists are sorted. A test of a key is never folded to a constant, because it is unknown if the key
is. Equal normal forms select the same updates. Therefore flows whose normal forms have the same hash share work, and
the hash is stored beside a datamarker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from decimal import Decimal
from typing import Final

from wormhole.filters.tree import (
    And,
    Compare,
    Const,
    Expr,
    HashIn,
    In,
    Literal,
    Not,
    OpIn,
    Or,
    Order,
    StartsWith,
    TableIn,
    TableMatches,
    write,
)
from wormhole.model.values import Op

__all__ = ["content_hash", "joined", "normalise"]

_OPPOSITE: Final[dict[str, Order]] = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_OP_ORDER: Final = {op: i for i, op in enumerate(Op)}


def content_hash(normal: Expr, projection: str = "") -> str:
    """Sixteen hexadecimal digits: the first 64 bits of the SHA-256 of the normal form's text, and of the projection's.

    Stable between releases.
    """
    text = f"{write(normal)}\n{projection}" if projection else write(normal)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def normalise(expr: Expr, negated: bool = False) -> Expr:
    """The normal form of ``expr``, or of its opposite."""
    match expr:
        case Const(value):
            return Const(value != negated)
        case Not(term):
            return normalise(term, not negated)
        case And(terms) | Or(terms):
            all_of = isinstance(expr, And) != negated
            return joined(all_of, (normalise(term, negated) for term in terms))
        case Compare(subject, order, value) if negated and order != "==":
            return Compare(subject, _OPPOSITE[order], _literal(value))
        case Compare(subject, order, value):
            leaf: Expr = Compare(subject, order, _literal(value))
        case In(subject, values):
            unique = tuple(sorted(set(map(_literal, values))))  # the parser ensures one kind, so they can be sorted
            leaf = In(subject, unique) if len(unique) > 1 else Compare(subject, "==", unique[0])
        case StartsWith(subject, prefix):
            leaf = StartsWith(subject, prefix.encode() if isinstance(prefix, str) else prefix)
        case HashIn(modulus, remainders):
            leaf = HashIn(modulus, tuple(sorted(set(remainders))))
        case OpIn(ops):
            leaf = OpIn(tuple(sorted(set(ops), key=_OP_ORDER.__getitem__)))
        case TableIn(names):
            leaf = TableIn(tuple(sorted(set(names))))
        case TableMatches(patterns):
            if "*" in patterns:
                return Const(not negated)
            leaf = TableMatches(tuple(sorted(set(patterns))))
        case _:
            leaf = expr
    return Not(leaf) if negated else leaf


def joined(all_of: bool, terms: Iterable[Expr]) -> Expr:
    """``and`` (or ``or``) of normal forms, in normal form."""
    node = And if all_of else Or
    found: dict[str, Expr] = {}
    for term in terms:
        for part in term.terms if isinstance(term, node) else (term,):
            if isinstance(part, Const):
                if part.value != all_of:
                    return part
                continue
            found[write(part)] = part
    if not found:
        return Const(all_of)
    parts = tuple(found[text] for text in sorted(found))
    return parts[0] if len(parts) == 1 else node(parts)


def _literal(value: Literal) -> Literal:
    match value:
        case str():
            return value.encode()
        case Decimal() if value == value.to_integral_value():
            return int(value)
        case Decimal():
            return Decimal(format(value, "f").rstrip("0"))  # normalize() would round to the context
        case _:
            return value
