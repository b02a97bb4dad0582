"""What follows when a subscriber refuses a flow because it holds the shard in another epoch. Pure.

Epochs in the marker store fall behind what subscribers hold when the store was set back (a backup of it was restored,
or it was lost), and when another publisher with a store of its own serves the same log.
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
    """A refusal. ``held_epoch``: what the next epoch has to exceed; ``by``: the publisher that assigned it;
    ``contested``: that is another one, and it goes first at this subscriber for now. ``until`` and ``at`` (seconds,
    monotonic): the flow is not assigned before, and when the refusal was.
    """

    held_epoch: int
    by: str
    contested: bool
    until: float
    at: float


def after_refusal(refusal: FlowFailed, before: EpochConflict | None, *, sole: bool, now: float) -> EpochConflict | None:
    """What to do after ``refusal``, with ``before`` the one before it of the same flow; ``None``: the epoch to exceed
    is not known.

    Without another publisher at work the epoch is raised above what the subscriber holds, at once. Against another one
    only the ``sole`` owner of the log does that, and once within a minute: if the flow is taken again, both believe
    that they own it.
    """
    if not refusal.held_epoch or not may_be_exceeded(refusal.held_epoch):
        return None
    again = before is not None and now - before.at < _SETTLES_S
    contested = refusal.contested and (again or not sole)
    # A refusal without another publisher is answered at once, but not twice in a row: whatever is wrong then, it must
    # not spin.
    wait = _PAUSE_S if contested or again else 0.0
    return EpochConflict(refusal.held_epoch, refusal.held_by, contested, now + wait, now)


def store_was_lost(before: EpochConflict | None, refusal: EpochConflict, *, acknowledged: bool) -> bool:
    """Whether a refusal proves that the flow was served and the marker store knows nothing of it.

    Nothing was ``acknowledged`` to this store, and the subscriber has had the flow. Beside another publisher that is no
    proof: this one registered the flow while the other one was at work, so it begins at or before what the other one
    delivered.
    """
    return not acknowledged and not refusal.contested and (before is None or not before.contested)


def explained(conflict: EpochConflict, epoch: int, marker: Datamarker, subscriber: str) -> Problem:
    """The same for operators. ``epoch`` is what was refused, ``marker`` where delivery begins."""
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
