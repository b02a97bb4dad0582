"""Compares archived updates with delivered and processed ones, window by window. Pure.

Delivered and archived updates are compared exactly, with their checksums, in the range that both the flow's delivery
counts and the archive cover. Earlier updates are unaudited. Later ones are open: they are not acknowledged yet, and not
lost. If a replay delivered only a part of the log, as requested, nothing can be compared there, so these updates are
neither lost nor complete.

Duplicates are counted only if an update was certainly processed again: its callback returned, or it was set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from spark_replay.archive.columns import position_of
from spark_replay.audit.archived import Archived, AuditPart
from wormhole.audit.delivery_counts import is_past
from wormhole.wire.tally import WINDOW_S, Tally
from wormhole.wire.v1 import admin_pb2

__all__ = ["COMPLETE", "AuditFinding", "AuditWindow", "compare", "completed_s", "findings", "single_hashes"]

COMPLETE = 0.999
"""A window is complete when this share of it is acknowledged."""


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """``kind``: ``lost`` (archived and never delivered), ``unprocessed`` (delivered, but no callback returned),
    ``repaired`` (unprocessed, and delivered again since), ``set_aside`` (skipped or parked), ``unarchived`` (delivered,
    but not in the archive), ``differs`` (the same number of updates, but other ones). ``update``: its id, if known;
    else ``where`` is the narrowest known range.
    """

    kind: str
    flow: str
    window: int
    updates: int
    update: str = ""
    where: str = ""

    @property
    def is_loss(self) -> bool:
        """Whether something that should have been processed was not."""
        return self.kind in ("lost", "unprocessed", "differs")


@dataclass(slots=True)
class AuditWindow:
    """One window of one flow. ``archived``: archived updates in the range of the delivery counts. ``processed``,
    ``duplicates``: ``None`` if no subscriber reported them. ``replayed``: archived updates in ranges that were
    partially replayed. ``replayed_processed``: callbacks of these that returned. ``state``: ``complete``, ``open``,
    ``unaudited``, ``replayed`` or ``not archived``. ``complete_s``: the time from its end until it was complete, in
    seconds (an upper limit).
    """

    flow: str
    window: int
    archived: int
    delivered: int
    processed: int | None
    set_aside: int
    duplicates: int | None
    lost: int
    unprocessed: int
    unaudited: int
    pending: int
    state: str
    complete_s: float | None
    replayed: int = 0
    replayed_processed: int = 0
    repaired: int = 0
    missing: Tally = field(default_factory=Tally)
    set_aside_hash: int = 0
    problems: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    between: str = ""


def compare(
    flow: str,
    archived: Mapping[int, Archived],
    counted: Mapping[int, admin_pb2.AuditWindow],
    limits: Sequence[float],
    *,
    lacks: Callable[[int], bool],
    now_s: float,
) -> list[AuditWindow]:
    """All windows of one flow, in order.

    ``lacks``: whether the archive may lack delivered updates of a window.
    """
    found = []
    for window in sorted({*archived, *counted}):
        held, counts = archived.get(window, Archived()), counted.get(window, admin_pb2.AuditWindow())
        found.append(_window(flow, window, held, counts, limits, behind=lacks(window), now_s=now_s))
    return found


def _window(
    flow: str,
    number: int,
    archived: Archived,
    counts: admin_pb2.AuditWindow,
    limits: Sequence[float],
    *,
    behind: bool,
    now_s: float,
) -> AuditWindow:
    once, redelivered, replayed = (
        archived.of(part) for part in (AuditPart.COUNTED, AuditPart.REDELIVERED, AuditPart.PARTIAL)
    )
    held, unaudited, pending = once.plus(redelivered), archived.of(AuditPart.UNAUDITED), archived.of(AuditPart.PENDING)
    past = is_past(number, now_s)
    if past:  # the publisher had its counts, and deleted them
        counts, held, unaudited = admin_pb2.AuditWindow(), Tally(), unaudited.plus(held)
    missing = Tally() if behind else held.minus(Tally(counts.delivered, counts.hash))
    if redelivered.updates and not once.updates and missing.updates >= 0:
        missing = Tally()
    duplicates = max(0, counts.processed + counts.set_aside - counts.delivered + counts.missing_first - counts.ahead)
    if behind:
        state = "not archived"
    elif pending.updates or (number and now_s < (number + 1) * WINDOW_S):
        state = "open"
    elif replayed.updates and not held.updates and not counts.delivered:
        state = "replayed"
    elif past or (unaudited.updates and not held.updates and not counts.delivered):
        state = "unaudited"
    else:
        state = "complete"
    return AuditWindow(
        flow=flow,
        window=number,
        archived=held.updates,
        delivered=counts.delivered,
        processed=counts.processed if counts.told else None,
        set_aside=counts.set_aside,
        duplicates=duplicates if counts.told else None,
        lost=max(0, min(missing.updates, once.updates) if redelivered.updates else missing.updates),
        unprocessed=counts.missing,
        repaired=counts.repaired,
        unaudited=unaudited.updates,
        pending=pending.updates,
        state=state,
        complete_s=completed_s(counts.delays, limits, held.updates) if state == "complete" else None,
        replayed=replayed.updates,
        replayed_processed=counts.processed_partly,
        missing=missing,
        set_aside_hash=counts.set_aside_hash,
        problems=tuple(counts.problems),
        repairs=tuple(counts.repairs),
        between=f"{position_of(archived.first)} to {position_of(archived.last)}" if archived.first else "",
    )


def completed_s(delays: Sequence[int], limits: Sequence[float], updates: int) -> float | None:
    """An upper limit of the time from a window's end until :data:`COMPLETE` of its updates were acknowledged.

    ``None`` if it is not known; infinity if it is above the last limit.
    """
    reached = 0
    for limit, count in zip((*limits, float("inf")), delays, strict=False):
        reached += count
        if updates and reached >= COMPLETE * updates:
            return limit
    return None


def single_hashes(windows: Sequence[AuditWindow]) -> dict[tuple[str, int], frozenset[int]]:
    """Hashes of updates that are the only lost or the only set aside one of their window, by shard and window.

    Their ids can be found in the archive.
    """
    single: dict[tuple[str, int], frozenset[int]] = {}
    for one in windows:
        hashes = {one.missing.hash} if one.lost == 1 else set()
        hashes |= {one.set_aside_hash} if one.set_aside == 1 else set()
        if hashes:
            single[_shard(one), one.window] = frozenset(hashes)
    return single


def findings(windows: Sequence[AuditWindow], ids: Mapping[tuple[str, int], Mapping[int, str]]) -> list[AuditFinding]:
    """The findings of the comparison. ``ids``: the ids of the updates in :func:`single_hashes`."""
    return [finding for one in windows for finding in _findings(one, ids.get((_shard(one), one.window), {}))]


def _findings(one: AuditWindow, ids: Mapping[int, str]) -> Iterator[AuditFinding]:
    def finding(kind: str, updates: int, where: str, hash_: int = 0) -> AuditFinding:
        update = ids.get(hash_, "") if updates == 1 else ""
        return AuditFinding(kind, one.flow, one.window, updates, update, "" if update else where)

    if one.lost:
        yield finding("lost", one.lost, one.between, one.missing.hash)
    elif one.missing.updates < 0:
        yield finding("unarchived", -one.missing.updates, one.between)
    elif one.missing.hash:
        yield finding("differs", one.archived, one.between)
    if one.unprocessed:
        yield finding("unprocessed", one.unprocessed, "; ".join(one.problems))
    if one.repaired:
        yield finding("repaired", one.repaired, "; ".join(one.repairs))
    if one.set_aside:
        yield finding("set_aside", one.set_aside, one.between, one.set_aside_hash)


def _shard(one: AuditWindow) -> str:
    return one.flow.partition("/")[2]
