"""The syntax tree of a filter, and its text.

Trees are values: two filters with equal text are equal, whatever their columns. The column ``at`` is excluded from the
comparison and used only for errors. :func:`write` and :func:`wormhole.filters.parser.parse` are inverses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, cast
from typing import Literal as OneOf

from wormhole.model.values import Op

__all__ = [
    "RESERVED",
    "And",
    "Changed",
    "Compare",
    "Const",
    "Expr",
    "Field",
    "HashIn",
    "In",
    "Is",
    "KeyPart",
    "Leaf",
    "Literal",
    "Moved",
    "Not",
    "OpIn",
    "Or",
    "Order",
    "StartsWith",
    "Subject",
    "TableIn",
    "TableMatches",
    "WholeKey",
    "leaves",
    "write",
    "write_literal",
]

Literal = bytes | str | bool | int | Decimal
"""The value with which a key or field is compared. Text equals bytes that are its UTF-8."""

Order = OneOf["==", "<", "<=", ">", ">="]

RESERVED: Final = frozenset(
    {"and", "or", "not", "in", "startswith", "matches", "true", "false", "null"}
    | {"table", "op", "key", "hash", "prefix", "changed", "entered", "left"}
)
"""Words that name no field unless they are in backticks."""


@dataclass(frozen=True, slots=True)
class WholeKey:
    """``key``: the value of a key of one column."""


@dataclass(frozen=True, slots=True)
class KeyPart:
    """``key[index]``: one column of a key, counted from 0."""

    index: int


@dataclass(frozen=True, slots=True)
class Field:
    """A column by its name: of the key, or of the row.

    In a table with a value format: a field of the value, ``path`` below ``name``.
    """

    name: str
    path: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[str, ...]:
        """The whole path."""
        return (self.name, *self.path)


Subject = WholeKey | KeyPart | Field


@dataclass(frozen=True, slots=True)
class Const:
    """``true`` or ``false``."""

    value: bool


@dataclass(frozen=True, slots=True)
class _Test:
    """``at``: the column in the filter's text; -1: it has none."""

    at: int = field(default=-1, compare=False, repr=False, kw_only=True)


@dataclass(frozen=True, slots=True)
class TableIn(_Test):
    """``table == "a"`` and ``table in ("a", "b")``."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableMatches(_Test):
    """``table matches "shop.*"``: one of the shell patterns (``*``, ``?``, ``[abc]``), case sensitive."""

    patterns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class OpIn(_Test):
    """``op == "delete"`` and ``op in ("upsert", "delete")``."""

    ops: tuple[Op, ...]


@dataclass(frozen=True, slots=True)
class Compare(_Test):
    """A key or field against one value."""

    subject: Subject
    order: Order
    value: Literal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Compare) and _typed(self) == _typed(other)

    def __hash__(self) -> int:
        return hash(_typed(self))


@dataclass(frozen=True, slots=True)
class In(_Test):
    """A key or field against a list of values of one kind."""

    subject: Subject
    values: tuple[Literal, ...]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, In) and _typed(self) == _typed(other)

    def __hash__(self) -> int:
        return hash(_typed(self))


@dataclass(frozen=True, slots=True)
class StartsWith(_Test):
    """A key or field begins with these bytes."""

    subject: Subject
    prefix: bytes | str


@dataclass(frozen=True, slots=True)
class HashIn(_Test):
    """``hash(key) % modulus in remainders``: the CRC-32 of :mod:`wormhole.model.sharding`."""

    modulus: int
    remainders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Is(_Test):
    """``field is null``: the field exists without a value. ``field is absent``: the value has no such field."""

    subject: Subject
    what: OneOf["null", "absent"]


@dataclass(frozen=True, slots=True)
class Changed(_Test):
    """``changed(field)``: the field has another value than before. In an insert and a delete every field is changed."""

    subject: Field


@dataclass(frozen=True, slots=True)
class Moved(_Test):
    """``entered`` or ``left``: the row did not match before, or does not match any more."""

    how: OneOf["entered", "left"]


@dataclass(frozen=True, slots=True)
class Not:
    """The negation of one expression."""

    term: Expr


@dataclass(frozen=True, slots=True)
class And:
    """The conjunction of two or more expressions."""

    terms: tuple[Expr, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """The disjunction of two or more expressions."""

    terms: tuple[Expr, ...]


Leaf = TableIn | TableMatches | OpIn | Compare | In | StartsWith | HashIn | Is | Changed | Moved
Expr = Const | Leaf | Not | And | Or


def _typed(node: Compare | In) -> tuple[object, ...]:
    # 1, True and Decimal(1) are equal in Python. In filters they are three different values.
    if isinstance(node, In):
        return (node.subject, tuple(map(type, node.values)), node.values)
    return (node.subject, node.order, type(node.value), node.value)


def leaves(expr: Expr) -> Iterator[Leaf]:
    """Every test in the tree, from left to right."""
    match expr:
        case And(terms) | Or(terms):
            for term in terms:
                yield from leaves(term)
        case Not(term):
            yield from leaves(term)
        case Const():
            return
        case _:
            yield expr


_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _name(name: str) -> str:
    if _PLAIN_NAME.fullmatch(name) and name not in RESERVED:
        return name
    return "`" + name.replace("`", "``") + "`"


def _text(value: str) -> str:
    parts = (
        _ESCAPES.get(c) or (c if c.isprintable() else f"\\u{ord(c):04x}" if ord(c) < 0x10000 else f"\\U{ord(c):08x}")
        for c in value
    )
    return '"' + "".join(parts) + '"'


def write_literal(value: Literal) -> str:
    """A value as it is written in a filter."""
    match value:
        case bool():
            return "true" if value else "false"
        case bytes():
            if all(0x20 <= byte < 0x7F for byte in value):
                return "b" + _text(value.decode("ascii"))
            return "0x" + value.hex()
        case str():
            return _text(value)
        case Decimal():
            text = format(value, "f")
            return text if "." in text else text + ".0"
        case _:
            return str(value)


def _subject(subject: Subject) -> str:
    match subject:
        case WholeKey():
            return "key"
        case KeyPart(index):
            return f"key[{index}]"
        case Field():
            return ".".join(map(_name, subject.parts))


def _listed(items: tuple[str, ...]) -> str:
    return f"({', '.join(items)})"


def _leaf(leaf: Leaf, negated: bool) -> str:
    equal, within = ("!=", "not in") if negated else ("==", "in")

    def choice(left: str, items: tuple[str, ...]) -> str:
        return f"{left} {equal} {items[0]}" if len(items) == 1 else f"{left} {within} {_listed(items)}"

    match leaf:
        case TableIn(names):
            return choice("table", tuple(map(_text, names)))
        case OpIn(ops):
            return choice("op", tuple(f'"{op.value}"' for op in ops))
        case HashIn(modulus, remainders):
            return choice(f"hash(key) % {modulus}", tuple(map(str, remainders)))
        case In(subject, values):
            return f"{_subject(subject)} {within} {_listed(tuple(map(write_literal, values)))}"
        case Compare(subject, "==", value):
            return f"{_subject(subject)} {equal} {write_literal(value)}"
        case Is(subject, what):
            return f"{_subject(subject)} is {'not ' if negated else ''}{what}"
    prefix = "not " if negated else ""
    match leaf:
        case Compare(subject, order, value):
            return f"{prefix}{_subject(subject)} {order} {write_literal(value)}"
        case TableMatches(patterns):
            items = tuple(map(_text, patterns))
            return f"{prefix}table matches {items[0] if len(items) == 1 else _listed(items)}"
        case StartsWith(subject, start):
            return f"{prefix}{_subject(subject)} startswith {write_literal(start)}"
        case Changed(subject):
            return f"{prefix}changed({_subject(subject)})"
        case Moved(how):
            return f"{prefix}{how}"


def write(expr: Expr) -> str:
    """The text of a tree; parsing it gives an equal tree."""
    match expr:
        case Const(value):
            return "true" if value else "false"
        case Or(terms):
            return " or ".join(f"({write(t)})" if isinstance(t, Or) else write(t) for t in terms)
        case And(terms):
            return " and ".join(f"({write(t)})" if isinstance(t, And | Or) else write(t) for t in terms)
        case Not(And() | Or() as term):
            return f"not ({write(term)})"
        case Not(Not() | Const() as term):
            return f"not {write(term)}"
        case Not(term):
            return _leaf(cast(Leaf, term), negated=True)
        case _:
            return _leaf(expr, negated=False)
