"""Decides which tests of a filter a source can evaluate. A test that no update of the source can answer is refused
when an application subscribes.
"""

from __future__ import annotations

from typing import Final

from wormhole.filters.tree import (
    Changed,
    Compare,
    Field,
    HashIn,
    In,
    Is,
    KeyPart,
    Leaf,
    Moved,
    OpIn,
    StartsWith,
    Subject,
    TableIn,
    TableMatches,
    write_literal,
)
from wormhole.formats import ValueFormats
from wormhole.model.capabilities import Capabilities
from wormhole.model.values import Op

__all__ = ["needs_of", "problem_of"]

_TESTS: Final = "table, op, key, hash(key)"
_FIELDS: Final = f"{_TESTS}, fields of the value"
_DECLARE: Final = f'{_TESTS}; with value_format = "json" (or another) under [datasets.NAME] also fields of the value'


def problem_of(leaf: Leaf, source: Capabilities, formats: ValueFormats) -> tuple[str, str] | None:
    """The reason why a test cannot be evaluated for a source, and what is allowed instead; ``None`` if it can be."""
    match leaf:
        case TableIn() | TableMatches() if source.databases:
            return _table_problem(leaf, source)
        case Changed(subject) if not source.row_before:
            return f"changed({_written(subject)}) {_needs_row_before(source)}", _FIELDS
        case Moved("entered") if not source.row_before:
            return f"entered {_needs_row_before(source)}", f"{_FIELDS}, not left"
        case OpIn(ops) if wrong := [op for op in ops if op not in (*source.ops, Op.READ)]:
            merged = Op.UPSERT in source.ops and wrong[0] in (Op.INSERT, Op.UPDATE)
            why = ' (a write is an "upsert": the log does not distinguish insert from update)' if merged else ""
            return (
                f'the log of {source.title} has no operation "{wrong[0].value}"{why}',
                ", ".join(f'"{op.value}"' for op in dict.fromkeys((*source.ops, Op.READ))),
            )
    if source.of_bytes:
        return _bytes_problem(leaf, source, formats)
    return None if formats else _column_problem(leaf, source)


def _needs_row_before(source: Capabilities) -> str:
    return f"needs the row before the change, which the log of {source.title} does not hold"


def _bytes_problem(leaf: Leaf, source: Capabilities, formats: ValueFormats) -> tuple[str, str] | None:
    match leaf:
        case Moved("left") if not formats:
            return "left needs values, and this source declares no value format", _DECLARE
        case Compare(subject, _, value):
            return _subject_problem(subject, value, source, formats)
        case In(subject, values):
            return _subject_problem(subject, values[0], source, formats)
        case StartsWith(subject, prefix):
            return _subject_problem(subject, prefix, source, formats)
        case Is(subject, what):
            if not isinstance(subject, Field):
                return f"a key of {source.title} is never {what}", _FIELDS
            return _subject_problem(subject, b"", source, formats)
    return None


def needs_of(leaf: Leaf) -> str:
    """The part of an update that a test needs: its table, operation, key, values, or the row before the change."""
    match leaf:
        case Changed():
            return "the values before and after"
        case Moved("entered"):
            return "the row before the change"
        case Moved():
            return "the rest of the filter"
        case OpIn():
            return "the operation"
        case Compare(subject) | In(subject) | StartsWith(subject) | Is(subject):
            return "the value" if isinstance(subject, Field) else "the key"
        case HashIn():
            return "the key"
        case _:
            return "the table"


def _table_problem(leaf: TableIn | TableMatches, source: Capabilities) -> tuple[str, str] | None:
    names = leaf.names if isinstance(leaf, TableIn) else leaf.patterns
    for name in names:
        if name in source.more_tables:
            continue
        if "." not in name and (isinstance(leaf, TableIn) or not set("*?[") & set(name)):
            return (
                f'no table is called "{name}": tables of this source are "{source.table_name}"',
                f'"{source.example_database}.{name}", matches "*.{name}"',
            )
    return None


def _written(subject: Field) -> str:
    return ".".join(subject.parts)


def _column_problem(leaf: Leaf, source: Capabilities) -> tuple[str, str] | None:
    subject = getattr(leaf, "subject", None)
    if isinstance(subject, Field) and subject.path:
        return f"a column of {source.title} has no parts, so {_written(subject)} is nothing", subject.name
    return None


def _subject_problem(
    subject: Subject, value: object, source: Capabilities, formats: ValueFormats
) -> tuple[str, str] | None:
    if isinstance(subject, Field):
        if not formats:
            return f"the field {_written(subject)} needs values, and this source declares no value format", _DECLARE
        problems = [decoder.problem(subject.parts) for decoder in formats.decoders]
        # A field that one table can have is valid: for the other tables the test is unknown.
        found = [problem for problem in problems if problem is not None]
        return (found[0], _FIELDS) if len(found) == len(problems) else None
    if isinstance(subject, KeyPart) and subject.index > 0:
        return f"a key of {source.title} has one part, so key[{subject.index}] is nothing", "key"
    if not isinstance(value, bytes | str):
        shown = write_literal(value) if isinstance(value, bool | int) else str(value)
        return f"a key of {source.title} is bytes and cannot be compared with {shown}", '"text", b"bytes", 0xff00'
    return None
