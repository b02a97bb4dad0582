"""Compiles a filter for one table's schema. Some operations are decided at once; a predicate over keys and fields
decides the others.

An update is delivered when its row before the change or after it may match (:mod:`wormhole.filters.leaf_tests` defines
"may"). Its mark follows from both: it **entered** when it did not match before. It **left** when it may have matched
before and does not match now. An insert has no row before, and a delete has no row after. Both are never marked.
A READ is an existing row. It has no row before, is tested on its present row, and is never marked. Whether it
``changed`` is unknown.

A **barrier** (DELETE_RANGE, TRUNCATE) is an update itself, and also the deletion of every row it covers. It is kept
when one of those rows may match. Its tests apply to all keys from ``key`` to ``key_end``.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, cast

from wormhole.filters.leaf_tests import (
    GeneralTest,
    Names,
    RangeTest,
    RecordTest,
    SimpleTest,
    as_bytes,
    general_test,
    range_test,
    record_test,
    simple_test,
)
from wormhole.filters.normal import joined
from wormhole.filters.tree import And, Changed, Const, Expr, Leaf, Not, OpIn, Or, TableIn, TableMatches
from wormhole.filters.view import Head, Reader
from wormhole.formats import ValueFormats
from wormhole.model.schema import Schema
from wormhole.model.values import Op
from wormhole.wire.v1 import update_pb2

__all__ = ["DROP", "ENTERED", "KEEP", "LEFT", "LEFT_KEY", "OP_NUMBERS", "Decision", "Plan", "for_table", "make_plan"]

OP_NUMBERS: Final = {op: int(update_pb2.Op.Value(op.name)) for op in Op}
_KINDS: Final[tuple[tuple[Op, frozenset[Op]], ...]] = tuple(
    (op, frozenset((op, Op.DELETE)) if op in (Op.TRUNCATE, Op.DELETE_RANGE) else frozenset((op,))) for op in Op
)

DROP, KEEP, ENTERED, LEFT, LEFT_KEY = range(5)
"""The outcomes for an update.

LEFT_KEY: the row left the selection, and only its key is sent: the log has no row from before the change.
"""

_ONE_SIDED: Final = frozenset((Op.INSERT, Op.DELETE))
"""Operations with no row before or after: every field changed."""

_NO_FORMATS: Final = ValueFormats()


@dataclass(slots=True)
class Decision:
    """The tests that are still needed for an update of one operation.

    ``decided``: the outcome, without any test. ``simple``: may an update with this plain key match, whatever its
    values? This decides, unless there is ``record``. With ``record``, ``simple`` is for the row before the change, and
    ``record`` is tested on the row after it. ``general``: the outcome of any update. ``parsed``: only ``general`` can
    decide, also for a plain key.
    """

    decided: bool | None
    simple: SimpleTest
    general: Callable[[Head], int]
    record: RecordTest | None = None
    parsed: bool = False


@dataclass(slots=True)
class Plan:
    """A filter for one schema.

    ``by_op[n]``: the decision for operation number ``n``; 0 is an unknown operation. ``whole``: the answer if no
    operation and no key changes it, else ``None``. ``ops_only``: no key is ever tested. ``one_test``: the test of every
    update with a plain key, if the operation does not matter for those. ``reader``: locates the fields, for a filter
    that tests any.
    """

    by_op: tuple[Decision, ...]
    whole: bool | None
    ops_only: bool
    one_test: SimpleTest | None
    reader: Reader | None = None


def make_plan(normal: Expr, schema: Schema, formats: ValueFormats = _NO_FORMATS) -> Plan:
    """Prepare a filter in normal form for one table."""
    of_table = for_table(normal, schema.table)
    reader: Reader | None = Reader(schema, formats)
    names = Names(schema, reader)
    if not names.valued(of_table):
        reader = None
    by_number = {0: _ALWAYS}
    cache: dict[tuple[Expr, Op | None], Decision] = {}
    for op, kinds in _KINDS:
        rest = _fold_op(of_table, kinds)
        # Barriers and plain updates evaluate different tests of the same expression. Values have another meaning in
        # each operation.
        if op in (Op.TRUNCATE, Op.DELETE_RANGE):
            by_number[OP_NUMBERS[op]] = _barrier(rest, names, op)
        else:
            key = (rest, op if reader is not None else None)
            if key not in cache:
                cache[key] = _plain(rest, names, op, reader)
            by_number[OP_NUMBERS[op]] = cache[key]
    by_op = tuple(by_number[n] for n in range(len(by_number)))
    answers = {decision.decided for decision in by_op[1:]}
    # An unknown operation of a table that the filter excludes is dropped, too.
    if of_table == Const(False):
        return Plan((_NEVER,) * len(by_op), False, True, None)
    one = cache[next(iter(cache))] if len(cache) == 1 else None
    return Plan(
        by_op,
        whole=True if answers == {True} else None,
        ops_only=None not in answers,
        one_test=one.simple if one is not None and one.decided is None else None,
        reader=reader,
    )


def for_table(normal: Expr, table: str) -> Expr:
    """The filter for updates of ``table``, in normal form: its tests of the table are replaced by their results."""
    return _fold(normal, lambda leaf: _table(leaf, table))


_ALWAYS: Final = Decision(True, lambda key: True, lambda head: KEEP)
_NEVER: Final = Decision(False, lambda key: False, lambda head: DROP)


def _fold(expr: Expr, decide: Callable[[Leaf], bool | None]) -> Expr:
    """Replace the tests that ``decide`` can answer, and simplify the rest."""
    match expr:
        case Const():
            return expr
        case And(terms) | Or(terms):
            return joined(isinstance(expr, And), (_fold(term, decide) for term in terms))
        case Not(term):
            answer = decide(cast(Leaf, term))
            return expr if answer is None else Const(not answer)
        case _:
            answer = decide(expr)
            return expr if answer is None else Const(answer)


def _table(leaf: Leaf, table: str) -> bool | None:
    match leaf:
        case TableIn(names):
            return table in names
        case TableMatches(patterns):
            return any(re.match(fnmatch.translate(pattern), table) for pattern in patterns)
        case _:
            return None


def _fold_op(expr: Expr, kinds: frozenset[Op]) -> Expr:
    """:func:`_fold` for tests of the operation: an update of several kinds may pass a test and its opposite."""
    match expr:
        case And(terms) | Or(terms):
            return joined(isinstance(expr, And), (_fold_op(term, kinds) for term in terms))
        case Not(OpIn(ops)):
            return Const(not kinds <= set(ops))
        case OpIn(ops):
            return Const(not kinds.isdisjoint(ops))
        case Changed() | Not(Changed()) if kinds <= _ONE_SIDED:
            return Const(isinstance(expr, Changed))
        case _:
            return expr


def _plain(rest: Expr, names: Names, op: Op, reader: Reader | None) -> Decision:
    if isinstance(rest, Const):
        return _ALWAYS if rest.value else _NEVER
    simple: SimpleTest = _tree(rest, lambda leaf, negated: simple_test(leaf, negated, names))
    image: GeneralTest = _tree(rest, lambda leaf, negated: general_test(leaf, negated, names))
    if reader is None or not names.valued(rest):
        return Decision(None, simple, lambda head: _moved(head, image))
    found = reader

    def general(head: Head) -> int:
        head.read(found)
        return _outcome(head, image, op)

    if reader.decoder is None:
        return Decision(None, simple, general, parsed=True)
    # A value with a format is in the log only after the change: for a delete or a merge only the key is known.
    match op:
        case Op.UPSERT:
            record: RecordTest = _tree(rest, lambda leaf, negated: record_test(leaf, negated, names))
            return Decision(None, simple, general, record)
        case Op.DELETE | Op.MERGE:
            return Decision(None, simple, general)
        case _:
            return Decision(None, simple, general, parsed=True)


def _moved(head: Head, image: GeneralTest) -> int:
    """The outcome for a filter on keys: an update that changed its key may have entered the selection, or left it."""
    after = image(head.new)
    if head.old is None:
        return KEEP if after else DROP
    before = image(head.old)
    if after:
        return KEEP if before else ENTERED
    return LEFT if before else DROP


def _outcome(head: Head, image: GeneralTest, op: Op) -> int:
    """The outcome for a filter on values."""
    match op:
        case Op.INSERT | Op.MERGE | Op.READ:
            return KEEP if image(head.new) else DROP
        case Op.DELETE:
            return KEEP if image(head.was) else DROP
        case _:
            before, after = image(head.was), image(head.new)
            if after:
                return KEEP if before else ENTERED
            if before:
                return LEFT_KEY if head.was.record is None else LEFT
            return DROP


def _barrier(rest: Expr, names: Names, op: Op) -> Decision:
    if isinstance(rest, Const):
        return _ALWAYS if rest.value else _NEVER
    if op is Op.TRUNCATE:
        return _ALWAYS  # every key of the table is covered
    within: RangeTest = _tree(rest, lambda leaf, negated: range_test(leaf, negated, names))

    def general(head: Head) -> int:
        begin, end = head.new.values, head.end
        if len(begin) != 1 or len(end) != 1:
            return KEEP
        low, high = as_bytes(begin[0]), as_bytes(end[0])
        return KEEP if low is None or high is None or within((low, high)) else DROP

    return Decision(None, lambda key: True, general)


def _tree(expr: Expr, leaf: Callable[[Leaf, bool], Callable[[Any], bool]]) -> Callable[[Any], bool]:
    """One function for an expression in normal form."""
    match expr:
        case And(terms) | Or(terms):
            tests = [_tree(term, leaf) for term in terms]
            return (_all if isinstance(expr, And) else _any)(tests)
        case Not(term):
            return leaf(cast(Leaf, term), True)
        case Const(value):
            return lambda key: value
        case _:
            return leaf(expr, False)


def _all(tests: Sequence[Callable[[Any], bool]]) -> Callable[[Any], bool]:
    if len(tests) == 2:
        first, second = tests
        return lambda key: first(key) and second(key)

    def every(key: Any) -> bool:
        for test in tests:  # noqa: SIM110  # a generator costs more than the tests
            if not test(key):
                return False
        return True

    return every


def _any(tests: Sequence[Callable[[Any], bool]]) -> Callable[[Any], bool]:
    if len(tests) == 2:
        first, second = tests
        return lambda key: first(key) or second(key)

    def some(key: Any) -> bool:
        for test in tests:  # noqa: SIM110  # a generator costs more than the tests
            if test(key):
                return True
        return False

    return some
