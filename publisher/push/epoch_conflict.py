"""Decides what follows when a subscriber refuses a flow because it holds the shard in another epoch. Pure.

The store's epoch is lower than the subscriber's in two cases. Either the marker store was lost or restored from an
older backup, or another publisher with its own store serves the same log.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from wormhole.model.position import Datamarker
from wormhole.model.problem import Problem
from wormhole.push.epochs import may_be_exceeded
from wormhole.push.session import FlowFailed

__all__ = ["EpochConflict", "after_refusal", "explained", "store_was_lost"]

_PAUSE_S: Final = 2.0
_SETTLES_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class EpochConflict:
    """A refusal. ``held_epoch``: the subscriber's epoch, which the next epoch has to exceed; ``by``: the publisher that
    assigned it. ``contested``: whether ``by`` is another publisher, which has precedence at this subscriber for now.
    ``until``: the flow is not assigned before this time. ``at``: the time of the refusal. Times are monotonic seconds.
    """

    held_epoch: int
    by: str
    contested: bool
    until: float
    at: float


def after_refusal(refusal: FlowFailed, before: EpochConflict | None, *, sole: bool, now: float) -> EpochConflict | None:
    """The conflict after ``refusal``; ``None`` if the subscriber did not report its epoch. ``before``: the flow's
    previous conflict.

    Without another publisher, the epoch is raised above the subscriber's immediately. Against another publisher, only
    the ``sole`` owner of the log raises it, and only once within a minute. If that publisher takes the flow again, both
    publishers believe that they own the log.
    """
    if not refusal.held_epoch or not may_be_exceeded(refusal.held_epoch):
        return None
    again = before is not None and now - before.at < _SETTLES_S
    contested = refusal.contested and (again or not sole)
    # A refusal without another publisher is answered immediately, but not twice in a row, to prevent a loop.
    wait = _PAUSE_S if contested or again else 0.0
    return EpochConflict(refusal.held_epoch, refusal.held_by, contested, now + wait, now)


def store_was_lost(before: EpochConflict | None, refusal: EpochConflict, *, acknowledged: bool) -> bool:
    """Whether a refusal proves that the marker store lost the record of the flow.

    The proof is that the subscriber has had the flow although this store has no ``acknowledged`` datamarker of it. A
    conflict with another publisher proves nothing: the flow was registered here meanwhile, and begins at or before the
    updates that the other publisher delivered.
    """
    return not acknowledged and not refusal.contested and (before is None or not before.contested)


def explained(conflict: EpochConflict, epoch: int, marker: Datamarker, subscriber: str) -> Problem:
    """The conflict in words, for operators. ``epoch``: the refused epoch; ``marker``: where delivery begins."""
    if conflict.contested:
        return Problem(
            f"another publisher, {conflict.by or 'of an unknown name'}, serves this flow to {subscriber} in epoch "
            f"{conflict.held_epoch}",
            "stop the one of the two that is not meant to serve the log; the other one then gets the flow by itself",
            code="owner-elsewhere",
        )
    return Problem(
        f"{subscriber} has seen epoch {conflict.held_epoch} (assigned by {conflict.by or 'an unknown publisher'}), the "
        f"marker store gave {epoch}: the store was set back, or another publisher served the flow meanwhile. It goes "
        f"on above that epoch, from the stored datamarker {marker}: what was delivered after that datamarker comes "
        "again",
        code="owner-elsewhere",
    )
