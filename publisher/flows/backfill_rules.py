"""How requests and events change a flow's backfill, which is stored in its ``FlowControl``. Pure.

A generation numbers one run of a backfill from its beginning. Each request begins a new generation. An event that
makes the rows sent so far useless begins one too: another filter, a datamarker that was set, a mass replay.
"""

from __future__ import annotations

import glob
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Final
from urllib.parse import unquote

from wormhole.config import EXISTING
from wormhole.filters import Filter
from wormhole.filters.tree import Changed, Moved, OpIn, leaves
from wormhole.formats import ValueFormats
from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import FilterError, UsageError
from wormhole.model.position import LogPosition
from wormhole.model.problem import Problem
from wormhole.model.sharding import Sharding
from wormhole.model.verification import VerifyMode
from wormhole.ports.marker_store import BackfillControl, FlowControl

__all__ = [
    "CANCELLED",
    "DONE",
    "START",
    "Range",
    "asked",
    "begun_anew",
    "check_size",
    "check_verifies",
    "compiled",
    "does_not_verify",
    "ended",
    "extended",
    "first_backfill",
    "is_unfinished",
    "noun_of",
    "paused",
    "renewed",
    "tables_of_shard",
    "with_lost",
]

Range = tuple[LogPosition, LogPosition]

START: Final = "start"
"""``BackfillControl.who`` of an application's own ``start = "existing"``."""
DONE: Final = "done"
CANCELLED: Final = "cancelled"

_MOST_TABLES: Final = 1_000
_LONGEST: Final = 64 << 10  # characters of all tables and the filter, which are stored with the flow's record


def first_backfill(epoch: int, filter_hash: str, now_s: float) -> BackfillControl:
    """The backfill of a flow that is being registered.

    ``epoch``: the last one in which the flow was served before its record was lost; 0 for a new flow. The generations
    were lost with the record, but each generation that delivered rows had an epoch of its own, so the new generation
    exceeds ``epoch``.
    """
    return BackfillControl(epoch + 1, START, now_s, filter_hash=filter_hash)


def begun_anew(control: FlowControl, start: str, filter_hash: str, now_s: float) -> FlowControl:
    """The control of a flow whose record is made as if the flow were new, when its application starts with ``start``.
    Its generations continue to rise, because the application may hold rows of former generations.
    """
    former = control.backfill
    if start == EXISTING:
        return asked(FlowControl(backfill=former), first_backfill(0, filter_hash, now_s), 0)
    return FlowControl(backfill=None if former is None else replace(former, ended=former.ended or CANCELLED, paused=""))


def asked(control: FlowControl, wanted: BackfillControl, epoch: int) -> FlowControl:
    """``control`` with the backfill ``wanted``, in the next generation. ``epoch``: the flow's epoch."""
    last = control.backfill.generation if control.backfill is not None else epoch
    return replace(control, backfill=replace(wanted, generation=last + 1))


def is_unfinished(control: FlowControl) -> bool:
    """Whether the backfill still has to send rows. A paused backfill is unfinished."""
    return control.backfill is not None and not control.backfill.ended


def noun_of(backfill: BackfillControl) -> str:
    """The noun for the backfill in messages."""
    return "backfill" if backfill.verify is VerifyMode.NONE else "verification"


def renewed(control: FlowControl, filter_hash: str, of: int | None = None, *, whole: bool = False) -> FlowControl:
    """``control`` with its unfinished backfill begun anew, in the next generation.

    ``of``: the generation that the backfill must have; ``None``: any. ``whole``: the new run reads whole tables, even
    if the former run read only rows that changed in lost log.
    """
    if control.backfill is None or control.backfill.ended or of not in (None, control.backfill.generation):
        return control
    begun = replace(control.backfill, generation=control.backfill.generation + 1, filter_hash=filter_hash)
    return replace(control, backfill=replace(begun, lost=()) if whole else begun)


def with_lost(ranges: Sequence[Range], begin: LogPosition, end: LogPosition) -> tuple[Range, ...]:
    """The ``ranges`` of lost log with the range from ``begin`` to ``end``. Adjacent ranges are joined."""
    found: list[Range] = []
    for low, high in sorted((*ranges, (begin, end))):
        if found and low <= found[-1][1]:
            found[-1] = found[-1][0], max(high, found[-1][1])
        else:
            found.append((low, high))
    return tuple(found)


def extended(control: FlowControl, lost: tuple[Range, ...], of: int, *, anew: bool) -> FlowControl:
    """``control`` with a backfill that reads the rows that changed in ``lost``, if its generation is ``of``.

    ``anew``: the backfill gets the next generation, because some of the rows were sent already.
    """
    backfill = control.backfill
    if backfill is None or backfill.ended or backfill.generation != of:
        return control
    return replace(control, backfill=replace(backfill, lost=lost, generation=of + anew))


def paused(control: FlowControl, by: str) -> FlowControl:
    """``control`` with an unfinished backfill paused ``by`` an operator, or not paused (empty)."""
    if control.backfill is None or control.backfill.ended:
        return control
    return replace(control, backfill=replace(control.backfill, paused=by))


def ended(control: FlowControl, how: str, generation: int, rows: int) -> FlowControl:
    """``control`` with its backfill ended after ``rows`` rows, if it is still in ``generation``.

    ``how``: :data:`DONE` or :data:`CANCELLED`.
    """
    backfill = control.backfill
    if backfill is None or backfill.ended or backfill.generation != generation:
        return control
    return replace(control, backfill=replace(backfill, ended=how, paused="", rows=rows))


def tables_of_shard(shard: str, log: str, sharding: Sharding) -> tuple[str, ...]:
    """Patterns of the tables whose rows are in a shard; empty: any table may have rows in it.

    With shards by hash, each table without a key has a shard of its own in addition.
    """
    if sharding.by == "log":
        return ()
    if sharding.by == "hash" and re.fullmatch(rf"{re.escape(log)}\.\d+of{sharding.count}", shard):
        return ()
    name = ".".join(unquote(part) for part in shard.removeprefix(f"{log}.").split("."))
    return (f"{glob.escape(name)}.*" if sharding.by == "database" else glob.escape(name),)


def compiled(where: str, formats: ValueFormats, source: Capabilities) -> Filter | None:
    """The compiled filter of a backfill; ``None`` for an empty ``where``.

    Raises :class:`~wormhole.model.errors.FilterError` for a filter that cannot be parsed, or that cannot be decided for
    an existing row.
    """
    if not where:
        return None
    found = Filter.parse(where, (), formats)
    found.check(source)
    for leaf in leaves(found.where):
        if isinstance(leaf, Changed | Moved | OpIn):
            raise FilterError(
                "where: changed, entered, left and op say something of a change, and an existing row is none",
                hint="test the table, the key and columns of the row",
            )
    return found


def check_size(tables: Sequence[str], where: str, rate: float | None) -> None:
    """Raises :class:`~wormhole.model.errors.UsageError` for a request that is too large or whose rate is not valid."""
    if rate is not None and not (math.isfinite(rate) and rate > 0):
        raise UsageError(
            f"rate {rate:g}: no row would ever be sent",
            hint="give bytes of rows per second above 0, or leave it out; `backfill pause` stops one",
        )
    if len(tables) > _MOST_TABLES or sum(map(len, tables)) + len(where) > _LONGEST:
        raise UsageError(
            f"at most {_MOST_TABLES} tables and {_LONGEST} characters can be asked for",
            hint="leave out the tables for all that the application receives, or use fewer",
        )
    if not all(tables):
        raise UsageError("a table has an empty name", hint="name it as updates do")


def check_verifies(where: str, verify: VerifyMode) -> None:
    """Raises :class:`~wormhole.model.errors.UsageError` for a verification with a filter: it compares whole tables."""
    if where and verify is not VerifyMode.NONE:
        raise UsageError(
            "a verification compares whole tables, and has no filter of its own",
            hint="leave out the filter; tables can be named",
        )


def does_not_verify(subscriber: str) -> Problem:
    """The problem of a verification whose ``subscriber`` cannot compare rows."""
    return Problem(
        f"subscriber {subscriber} cannot compare rows: its application has no on_verify and on_verify_keys, or its "
        "release of wormhole-pubsub is an earlier one",
        "add both to the application, see docs/existing-rows.md (a sink that writes documents has neither, see "
        "docs/sinks.md); `wormholectl backfill start` sends all rows instead",
        code="callback-wrong",
    )
