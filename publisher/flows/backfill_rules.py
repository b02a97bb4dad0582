"""What becomes of a flow's backfill request, as changes of its control. Pure.

A generation is one beginning of a backfill. It rises with each request, and with everything after which the rows that
were sent so far prove nothing: another filter, a datamarker that somebody set, a mass replay.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from wormhole.ports.marker_store import BackfillControl, FlowControl

__all__ = ["CANCELLED", "DONE", "START", "first_backfill", "is_unfinished", "renewed"]

START: Final = "start"
"""``BackfillControl.who`` of an application's own ``start = "existing"``."""
DONE: Final = "done"
CANCELLED: Final = "cancelled"


def first_backfill(epoch: int, filter_hash: str, now_s: float) -> BackfillControl:
    """Of a flow that is being registered. ``epoch``: the last one in which it was served before its record was lost,
    0 for a new flow: its generations went with the record, and each that delivered anything had an epoch.
    """
    return BackfillControl(epoch + 1, START, now_s, filter_hash=filter_hash)


def is_unfinished(control: FlowControl) -> bool:
    """Whether rows are still to be sent, also if it is paused."""
    return control.backfill is not None and not control.backfill.ended


def renewed(control: FlowControl, filter_hash: str) -> FlowControl:
    """``control`` with an unfinished backfill that begins anew, in the next generation."""
    if control.backfill is None or control.backfill.ended:
        return control
    generation = control.backfill.generation + 1
    return replace(control, backfill=replace(control.backfill, generation=generation, filter_hash=filter_hash))
