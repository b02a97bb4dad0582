"""A filter: parsed once, applied to every run of every flow that has it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Self, cast

from wormhole.filters.bound_to_schema import DROP, ENTERED, KEEP, LEFT_KEY, Plan, for_table, make_plan
from wormhole.filters.capabilities import problem_of
from wormhole.filters.lexer import fail
from wormhole.filters.normal import content_hash, joined, normalise
from wormhole.filters.parser import parse
from wormhole.filters.projection import Projection
from wormhole.filters.tree import And, Const, Expr, Field, Leaf, Moved, Not, Or, TableMatches, leaves, write
from wormhole.filters.view import RunView
from wormhole.formats import BadValue, ValueFormats
from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import FilterError
from wormhole.model.schema import Schema
from wormhole.model.segment import Run
from wormhole.wire.v1 import update_pb2

__all__ = ["Filter", "Selection", "explain"]

_MAX_PLANS: Final = 4096
"""Limit of the tables whose plan is kept. It is more than a database has, and bounds memory when names keep
changing.
"""

_NO_MARK, _ENTERED, _LEFT = 0, int(update_pb2.ENTERED), int(update_pb2.LEFT)


@dataclass(slots=True)
class Selection:
    """The selection of a filter in a run.

    ``kept``: ordinals, ascending, of the updates that it selects or cannot decide; ``None``: all. ``marks``: ordinal to
    number (``wormhole.wire.v1.Mark``) of the marked updates. ``key_only``: ordinal to entry of a batch body, for
    updates that are sent without values. ``bad``: the updates whose value is not of its format, with the reason, in
    ascending order; they are kept.
    """

    kept: Sequence[int] | None
    marks: Mapping[int, int] = field(default_factory=dict)
    key_only: Mapping[int, bytes] = field(default_factory=dict)
    bad: Sequence[tuple[int, BadValue]] = ()


@dataclass(frozen=True, slots=True)
class Filter:
    """Selects the updates of a flow, and the parts of them that are sent. Immutable; make one with :meth:`parse`.

    ``text``: the filter as one expression. ``normal``: its normal form. ``hash``: sixteen hexadecimal digits of the
    normal form and of the projection, equal for filters with the same structure and meaning, stable between releases.
    ``matches_all``: no update is left out. ``formats``: the formats of the values in the source's tables.
    ``projection``: the parts of the updates that are sent; the filter itself reads all parts.
    """

    where: Expr
    source: str = field(repr=False, compare=False)
    formats: ValueFormats = field(repr=False, compare=False, default_factory=ValueFormats)
    projection: Projection = field(repr=False, default_factory=Projection)
    text: str = field(init=False)
    normal: Expr = field(init=False, repr=False, compare=False)
    hash: str = field(init=False, compare=False)
    matches_all: bool = field(init=False, repr=False, compare=False)
    _base: Expr = field(init=False, repr=False, compare=False)
    _marks: frozenset[int] = field(init=False, repr=False, compare=False)
    _plans: dict[int, Plan] = field(init=False, repr=False, compare=False, default_factory=dict)

    def __post_init__(self) -> None:
        normal = normalise(self.where)
        base, marks = _without_marks(normal)
        for name, value in (
            ("text", write(self.where)),
            ("normal", normal),
            ("hash", content_hash(normal, self.projection.text)),
            ("matches_all", normal == Const(True)),
            ("_base", base),
            ("_marks", marks),
        ):
            object.__setattr__(self, name, value)
        if self.formats:
            # Now, and not at the first run: there may be too many fields, and values should be read once for all
            # filters.
            for leaf in leaves(base):
                subject = getattr(leaf, "subject", None)
                if isinstance(subject, Field):
                    self.formats.slot(subject.parts)

    @classmethod
    def parse(
        cls,
        where: str | None,
        tables: Sequence[str] = (),
        formats: ValueFormats | None = None,
        projection: Projection | None = None,
    ) -> Self:
        """The filter of an expression and of a list of table patterns. Without both it selects everything.

        ``formats``: the formats of the dataset, one object for all filters of a process. ``projection``: the parts of
        the updates that are sent; without it, everything. Raises :class:`~wormhole.model.errors.FilterError`, which
        shows the expression, points at the column and names what is allowed.
        """
        terms: list[Expr] = []
        if tables:
            terms.append(TableMatches(tuple(tables)))
        if where is not None:
            terms.append(parse(where))
        expr = And(tuple(terms)) if len(terms) == 2 else terms[0] if terms else Const(True)
        return cls(expr, where or "", ValueFormats() if formats is None else formats, projection or Projection())

    def check(self, source: Capabilities) -> None:
        """Refuse a filter that cannot be evaluated for a source. Called when an application subscribes.

        Raises :class:`~wormhole.model.errors.FilterError`.
        """
        beside = {id(term.term if isinstance(term, Not) else term) for term in _terms(self.normal)}
        for leaf in leaves(self.normal):
            if isinstance(leaf, Moved) and id(leaf) not in beside:
                text = f"{leaf.how} says what the rest of the filter means for an update, so it is written beside it"
                self._refuse(leaf.at, text, f"... and {leaf.how}, ... and not {leaf.how}")
        for leaf in leaves(self.where):
            problem = problem_of(leaf, source, self.formats)
            if problem is not None:
                self._refuse(leaf.at, *problem)
        self.projection.check(source)

    def _refuse(self, at: int, message: str, allowed: str) -> None:
        if at >= 0:
            fail(self.source, at, message, allowed)
        raise FilterError(f"filter: {message}", hint=f"allowed: {allowed}")

    def wants_none_of(self, table: str) -> bool:
        """Whether the filter drops every update of that table, whatever its content."""
        return self._plan(Schema(table, (), ())).whole is False

    @property
    def columns(self) -> frozenset[str]:
        """The columns, or fields of values, that the filter tests."""
        return frozenset(_columns(self.normal))

    def lacking(self, table: str, columns: Collection[str]) -> tuple[frozenset[str], bool]:
        """The columns that the filter tests in that table and that are not among the table's ``columns``, and whether
        every update passes because of them.

        A test of such a column is unknown for every update of the table, so it passes.
        """
        rest = for_table(self.normal, table)
        missing = frozenset(_columns(rest)) - set(columns)
        return missing, bool(missing) and _passing(rest, missing) == Const(True)

    def keep(self, view: RunView | Run) -> Sequence[int] | None:
        """Ordinals, ascending, of the updates of a run that the filter selects or cannot decide; ``None``: all
        of them.
        """
        return self.select(view).kept

    def select(self, view: RunView | Run) -> Selection:
        """The filter's selection in a run. Pass a :class:`RunView` to share decoded parts with other filters."""
        run = view.run if isinstance(view, RunView) else view
        if self.matches_all or not run.ends:
            return Selection(None)
        plans = [self._plan(schema) for schema in run.schemas]
        index = run.schema_index
        if len(plans) > 1 and index:
            plan_of = [plans[i] for i in index] if len(index) > 1 else [plans[index[0]]] * len(run.ends)
            used = [plans[i] for i in set(index)]
        else:
            plan_of, used = [], plans[:1]
        if all(plan.whole is not None for plan in used):
            found = Selection(_by_table(run, used, plan_of))
        else:
            shared = view if isinstance(view, RunView) else RunView(run)
            if any(plan.reader is not None for plan in used):
                shared.prepare(self.formats)
                found = _by_value(plan_of or used * len(run.ends), shared)
            else:
                kept = _one_table(used[0], shared) if len(used) == 1 else _many_tables(plan_of, shared)
                found = Selection(kept, _moves(plan_of or used * len(run.ends), shared, kept) if shared.moved else {})
        if self._marks is not _ANY_MARK:
            found = _with_marks(found, self._marks, len(run.ends))
        if found.kept is not None and len(found.kept) == len(run.ends):
            found.kept = None
        return found

    def _plan(self, schema: Schema) -> Plan:
        plan = self._plans.get(schema.id)
        if plan is None:
            if len(self._plans) >= _MAX_PLANS:
                self._plans.clear()
            plan = self._plans[schema.id] = make_plan(self._base, schema, self.formats)
        return plan

    def __str__(self) -> str:
        return self.text


def _columns(expr: Expr) -> Iterator[str]:
    return (column for leaf in leaves(expr) if (column := _column(leaf)))


def _column(leaf: Leaf) -> str:
    subject = getattr(leaf, "subject", None)
    return subject.name if isinstance(subject, Field) else ""


def _passing(expr: Expr, unknown: Collection[str]) -> Expr:
    """The expression with tests of the ``unknown`` columns passing, also under ``not``."""
    match expr:
        case And(terms) | Or(terms):
            return joined(isinstance(expr, And), (_passing(term, unknown) for term in terms))
        case Const():
            return expr
        case _:
            leaf = cast(Leaf, expr.term if isinstance(expr, Not) else expr)
            return Const(True) if _column(leaf) in unknown else expr


def explain(chosen: Filter) -> str:
    """The normal form of a filter as text: its tests, without repeats and in a fixed order."""
    return write(chosen.normal)


def _by_table(run: Run, used: Sequence[Plan], plan_of: Sequence[Plan]) -> Sequence[int] | None:
    if all(plan.whole for plan in used):
        return None
    if not any(plan.whole for plan in used):
        return ()
    return [i for i, plan in enumerate(plan_of) if plan.whole]


def _one_table(plan: Plan, view: RunView) -> list[int]:
    by_op, test = plan.by_op, plan.one_test
    if plan.ops_only:
        selected = bytes(n for n, decision in enumerate(by_op) if decision.decided)
        return [i for i, op in enumerate(view.ops) if op in selected]
    if test is not None:
        ops = view.ops
        return [
            i
            for i, key in enumerate(view.keys)
            if (test(key) if type(key) is bytes else by_op[ops[i]].general(key))  # type: ignore[arg-type]
        ]
    return _many_tables([plan] * len(view.ops), view)


def _many_tables(plan_of: Sequence[Plan], view: RunView) -> list[int]:
    kept = []
    for i, (plan, op, key) in enumerate(zip(plan_of, view.ops, view.keys, strict=True)):
        decision = plan.by_op[op]
        keep = decision.decided
        if keep is None:
            keep = decision.simple(key) if isinstance(key, bytes) else decision.general(key) != DROP
        if keep:
            kept.append(i)
    return kept


def _moves(plan_of: Sequence[Plan], view: RunView, kept: Sequence[int]) -> dict[int, int]:
    """Marks of the updates that changed their key, for filters without tests of values."""
    marks = {}
    chosen = set(kept)
    for i in view.moved:
        if i in chosen:
            decision = plan_of[i].by_op[view.ops[i]]
            outcome = KEEP if decision.decided is not None else decision.general(view.head(i))
            if outcome > KEEP:
                marks[i] = _ENTERED if outcome == ENTERED else _LEFT
    return marks


def _by_value(plan_of: Sequence[Plan], view: RunView) -> Selection:
    kept: list[int] = []
    marks: dict[int, int] = {}
    key_only: dict[int, bytes] = {}
    bad: list[tuple[int, BadValue]] = []
    read = view.record
    for i, (plan, op, key) in enumerate(zip(plan_of, view.ops, view.keys, strict=True)):
        decision = plan.by_op[op]
        if decision.decided is not None:
            if decision.decided:
                kept.append(i)
            continue
        if type(key) is bytes and not decision.parsed:
            if not decision.simple(key):
                continue
            kept.append(i)
            if decision.record is not None:
                assert plan.reader is not None
                record: Any = read(i, key, plan.reader)
                if type(record) is BadValue:
                    bad.append((i, record))
                elif record and not decision.record(record):
                    marks[i] = _LEFT
                    key_only[i] = view.key_only(i)
            continue
        head = view.head(i)
        outcome = decision.general(head)
        if outcome == DROP:
            continue
        kept.append(i)
        if outcome != KEEP:
            marks[i] = _ENTERED if outcome == ENTERED else _LEFT
            if outcome == LEFT_KEY:
                key_only[i] = view.key_only(i)
        if head.bad is not None and plan.reader is not None:
            bad.append((i, head.bad))
    return Selection(kept, marks, key_only, bad)


_ANY_MARK: Final = frozenset((_NO_MARK, _ENTERED, _LEFT))


def _terms(normal: Expr) -> tuple[Expr, ...]:
    return normal.terms if isinstance(normal, And) else (normal,)


def _without_marks(normal: Expr) -> tuple[Expr, frozenset[int]]:
    """The filter without the ``entered`` and ``left`` that are joined to it, and the marks that these allow."""
    allowed = _ANY_MARK
    rest = []
    for term in _terms(normal):
        match term:
            case Moved(how):
                allowed = allowed & {_ENTERED if how == "entered" else _LEFT}
            case Not(Moved(how)):
                allowed = allowed - {_ENTERED if how == "entered" else _LEFT}
            case _:
                rest.append(term)
    return joined(True, rest), allowed


def _with_marks(found: Selection, allowed: frozenset[int], updates: int) -> Selection:
    kept = range(updates) if found.kept is None else found.kept
    chosen = [i for i in kept if found.marks.get(i, _NO_MARK) in allowed]
    inside = set(chosen)
    return Selection(chosen, found.marks, found.key_only, [one for one in found.bad if one[0] in inside])
