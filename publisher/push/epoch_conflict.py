"""What follows when a subscriber refuses a flow because it holds the shard in another epoch. Pure.

Epochs in the marker store become lower than those of subscribers in two cases: an older backup of the store was
restored or the store was lost, or another publisher with a store of its own serves the same log.
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
    """A refusal. ``held_epoch``: the epoch that the next one has to exceed; ``by``: the publisher that assigned it;
    ``contested``: whether that is another publisher, which has precedence at this subscriber for now. ``until``
    (seconds, monotonic): the flow is not assigned before that. ``at``: the time of the refusal.
    """

    held_epoch: int
    by: str
    contested: bool
    until: float
    at: float


def after_refusal(refusal: FlowFailed, before: EpochConflict | None, *, sole: bool, now: float) -> EpochConflict | None:
    """What to do after ``refusal``; ``before``: the refusal before it of the same flow. ``None``: the epoch to exceed
    is not known.

    If no other publisher is at work, the epoch is raised above the subscriber's at once. Against another publisher only
    the ``sole`` owner of the log raises it, and only once within a minute: if the flow is taken again, both believe
    that they own it.
    """
    if not refusal.held_epoch or not may_be_exceeded(refusal.held_epoch):
        return None
    again = before is not None and now - before.at < _SETTLES_S
    contested = refusal.contested and (again or not sole)
    # A refusal without another publisher is answered at once, but not twice in a row. Whatever the cause of the second
    # one is, this must not loop.
    wait = _PAUSE_S if contested or again else 0.0
    return EpochConflict(refusal.held_epoch, refusal.held_by, contested, now + wait, now)


def store_was_lost(before: EpochConflict | None, refusal: EpochConflict, *, acknowledged: bool) -> bool:
    """Whether a refusal proves that the flow was served and the marker store does not have that.

    It is a proof if nothing was ``acknowledged`` to this store and the subscriber has had the flow. If another
    publisher is at work, it is not: this publisher registered the flow meanwhile, so the flow begins at or before what
    the other publisher delivered.
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
