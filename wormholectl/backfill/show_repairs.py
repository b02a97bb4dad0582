"""Prints the steps of a flow's repair, before or after it is made."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from wormhole.admin import Change
from wormhole.admin.admin_service import publisher_name
from wormhole.coordination.port import HistoryEntry
from wormhole.wire.v1 import admin_pb2
from wormhole.wire.verification_status import verifies
from wormholectl.show.backfills import BACKFILL
from wormholectl.show.printer import print_json, print_notes, print_text

__all__ = ["show_repair"]


def show_repair(change: Change, accepted: HistoryEntry | None, as_json: bool) -> None:
    """Print the lost range and the steps. ``accepted``: the flow's last loss that an operator accepted before."""
    before, backfill = change.before, change.after.backfill
    lost, notes = _lost(change, accepted)
    if as_json:
        print_json(
            {
                "publisher": publisher_name(change.publisher),
                "flow": change.flow,
                "changed": change.made,
                "lost": lost or None,
                "held": before.loss_pending,
                "backfill": BACKFILL.object(backfill),
                "notes": list(notes),
            }
        )
        return
    print_text(f"{change.flow}: {lost}" if lost else f"{change.flow} is not held at missing log")
    print_text(*_steps(change.flow, backfill, held=before.loss_pending, made=change.made))
    print_notes(notes)


def _lost(change: Change, accepted: HistoryEntry | None) -> tuple[str, Sequence[str]]:
    """The text about the lost range, and the other notes."""
    if change.before.loss_pending:
        return change.notes[0], change.notes[1:]
    if accepted is None:
        return "", change.notes
    when = datetime.fromtimestamp(accepted.at).astimezone().isoformat(" ", "seconds")
    return f"{accepted.before} (accepted by {accepted.who} at {when})", change.notes


def _steps(name: str, backfill: admin_pb2.BackfillStatus, *, held: bool, made: bool) -> list[str]:
    application, generation = name.partition("/")[0], f"in generation {backfill.generation}"
    if backfill.lost:
        step = f"the rows that changed in the missing log are delivered, {generation}: {backfill.lost}"
    elif verifies(backfill):
        step = (
            f"the rows that {application} holds are compared with its tables, {generation}; what differs is delivered"
        )
    else:
        step = (
            f"all rows of its tables are delivered, {generation}: {application} cannot compare rows "
            "(on_verify, on_verify_keys)"
        )
    steps = [f"  1. {step}"]
    if held:
        went = "went" if made else "goes"
        steps.append(f"  2. the flow {went} on without the missing log")
    return ["begun:" if made else "this would happen:", *steps]
