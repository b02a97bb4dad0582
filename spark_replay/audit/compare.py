"""What was archived against what was delivered and processed, window by window. Pure.

Delivered and archived are compared exactly, with their checksums, between the places that the flow's books cover and
the archive holds. What lies before is unaudited; what lies behind is open: it was not acknowledged yet, and is not
lost. Where a replay delivered less than the log has, because it was asked to, nothing can be compared: that is neither
lost nor complete.

Duplicates are told as far as they are proven, and how many more there may be beside: what a subscriber that was cut off
may have done, and what is about to come again. They are times that an update was dealt with again: its callback
returned, or it was set aside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from spark_replay.archive.columns import position_of
from spark_replay.audit.archived import Archived, Part
from wormhole.audit.books import is_past
from wormhole.wire.tally import WINDOW_S, Tally
from wormhole.wire.v1 import admin_pb2

__all__ = ["COMPLETE", "Finding", "Window", "compare", "completed_s", "found", "looked_for"]

COMPLETE = 0.999
"""A window counts as complete when this share of it was acknowledged."""


@dataclass(frozen=True, slots=True)
class Finding:
    """``kind``: ``lost`` (archived, and never delivered), ``unprocessed`` (delivered, and no callback returned),
    ``repaired`` (as that, and delivered again since), ``set_aside`` (skipped or parked), ``unarchived`` (delivered, and
    not in the archive), ``differs`` (as many, but other ones). ``update``: its id, where it is known; else ``where``
    tells the narrowest range.
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
class Window:
    """One window of one flow. ``archived``: between the places that the books cover; ``processed``, ``duplicates``:
    ``None`` where no subscriber told; ``possible``: so many duplicates more there may be; ``replayed``: archived, where
    a replay delivered the last changes only or what its own filter left, and ``replayed_processed``: callbacks of these
    that returned; ``state``: ``complete``, ``open``, ``unaudited``, ``replayed`` or ``not archived``; ``complete_s``:
    when it was complete, in seconds after its end (an upper limit).
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
    possible: int = 0
    repaired: int = 0
    missing: Tally = field(default_factory=Tally)
    set_aside_hash: int = 0
    problems: tuple[str, ...] = ()
    repairs: tuple[str, ...] = ()
    between: str = ""


def compare(
    flow: str,
    archived: Mapping[int, Archived],
    books: Mapping[int, admin_pb2.AuditWindow],
    limits: Sequence[float],
    *,
    lacks: Callable[[int], bool],
    now_s: float,
) -> list[Window]:
    """All windows of one flow, in order.

    ``lacks``: whether the archive may not have all of a window that the books have.
    """
    return [
        _window(
            flow, window, archived.get(window, Archived()), books.get(window), limits,
            behind=lacks(window), now_s=now_s,
        )
        for window in sorted({*archived, *books})
    ]  # fmt: skip


def _window(
    flow: str,
    number: int,
    archived: Archived,
    booked: admin_pb2.AuditWindow | None,
    limits: Sequence[float],
    *,
    behind: bool,
    now_s: float,
) -> Window:
    page = booked if booked is not None else admin_pb2.AuditWindow()
    once, again, replayed = (archived.of(part) for part in (Part.BOOKED, Part.AGAIN, Part.PARTLY))
    held, unaudited, ahead = once.plus(again), archived.of(Part.UNAUDITED), archived.of(Part.AHEAD)
    past = is_past(number, now_s)
    if past:  # the books had its page, and let it go
        page, held, unaudited = admin_pb2.AuditWindow(), Tally(), unaudited.plus(held)
    missing = Tally() if behind else held.minus(Tally(page.delivered, page.hash))
    if again.updates and not once.updates and missing.updates >= 0:
        missing = Tally()
    again_done = page.processed + page.set_aside - page.delivered
    least = max(0, again_done + page.missing_first - page.ahead)
    most = again_done + page.missing + page.unheard + archived.of(Part.UNHEARD).updates
    if behind:
        state = "not archived"
    elif ahead.updates or (number and now_s < (number + 1) * WINDOW_S):
        state = "open"
    elif replayed.updates and not held.updates and not page.delivered:
        state = "replayed"
    elif past or (unaudited.updates and not held.updates and not page.delivered):
        state = "unaudited"
    else:
        state = "complete"
    between = f"{position_of(archived.first)} to {position_of(archived.last)}" if archived.first else ""
    return Window(
        flow=flow,
        window=number,
        archived=held.updates,
        delivered=page.delivered,
        processed=page.processed if page.told else None,
        set_aside=page.set_aside,
        duplicates=least if page.told else None,
        possible=max(0, most - least) if page.told else 0,
        lost=max(0, min(missing.updates, once.updates)) if again.updates else max(0, missing.updates),
        unprocessed=page.missing,
        repaired=page.repaired,
        unaudited=unaudited.updates,
        pending=ahead.updates,
        state=state,
        complete_s=completed_s(page.delays, limits, held.updates) if state == "complete" else None,
        replayed=replayed.updates,
        replayed_processed=page.processed_partly,
        missing=missing,
        set_aside_hash=page.set_aside_hash,
        problems=tuple(page.problems),
        repairs=tuple(page.repairs),
        between=between,
    )


def completed_s(delays: Sequence[int], limits: Sequence[float], updates: int) -> float | None:
    """How long after a window's end :data:`COMPLETE` of its updates had been acknowledged: the limit below which that
    lies; ``None`` when that is not known, infinity above the last limit.
    """
    reached = 0
    for limit, count in zip((*limits, float("inf")), delays, strict=False):
        reached += count
        if updates and reached >= COMPLETE * updates:
            return limit
    return None


def looked_for(windows: Sequence[Window]) -> dict[tuple[str, int], frozenset[int]]:
    """Hashes of single updates that are lost or were set aside, by shard and window."""
    wanted: dict[tuple[str, int], set[int]] = {}
    for one in windows:
        key = (one.flow.partition("/")[2], one.window)
        if one.lost == 1:
            wanted.setdefault(key, set()).add(one.missing.hash)
        if one.set_aside == 1:
            wanted.setdefault(key, set()).add(one.set_aside_hash)
    return {key: frozenset(hashes) for key, hashes in wanted.items()}


def found(windows: Sequence[Window], ids: Mapping[tuple[str, int], Mapping[int, str]]) -> list[Finding]:
    """What there is to tell. ``ids``: of the hashes that were looked for."""
    told: list[Finding] = []
    for one in windows:
        known = ids.get((one.flow.partition("/")[2], one.window), {})

        def tell(
            kind: str,
            updates: int,
            hash_: int = 0,
            where: str = "",
            one: Window = one,
            known: Mapping[int, str] = known,
        ) -> None:
            update = known.get(hash_, "") if updates == 1 else ""
            told.append(Finding(kind, one.flow, one.window, updates, update, "" if update else where))

        if one.lost:
            tell("lost", one.lost, one.missing.hash, one.between)
        elif one.missing.updates < 0:
            tell("unarchived", -one.missing.updates, where=one.between)
        elif one.missing.hash:
            tell("differs", one.archived, where=one.between)
        if one.unprocessed:
            tell("unprocessed", one.unprocessed, where="; ".join(one.problems))
        if one.repaired:
            tell("repaired", one.repaired, where="; ".join(one.repairs))
        if one.set_aside:
            tell("set_aside", one.set_aside, one.set_aside_hash, one.between)
    return told
