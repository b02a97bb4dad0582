"""Stops a flow, or lets it skip, at log that cannot be sent: missing log, an undecodable update, or a bad value."""

from __future__ import annotations

import logging
from dataclasses import replace

from caravan.fleet import Fleet
from caravan.flow import CaravanFlow, Piece
from publisher.push.flow import PublisherFlow
from wormhole.model.loss import LogGap
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.problem import Problem
from wormhole.wire.body import BadUpdate

__all__ = ["ask_about_gap", "hold", "skip_undecodable"]

_log = logging.getLogger(__name__)


def skip_undecodable(flow: PublisherFlow, caravan_flow: CaravanFlow, piece: Piece) -> None:
    """Skip an update that cannot be decoded, because an operator requested it."""
    assert piece.broken is not None
    _log.warning("%s skips what cannot be decoded: %s", flow.name, piece.broken, extra=flow.about)
    caravan_flow.pass_broken(piece.broken.update_id)


def hold(fleet: Fleet, flow: PublisherFlow, caravan_flow: CaravanFlow, piece: Piece) -> None:
    """Hold the flow before an undecodable update, or before a segment with a bad value."""
    if piece.broken is not None:
        problem = replace(piece.broken.problem, text=f"held at {caravan_flow.place}: {piece.broken.text}")
    else:
        assert piece.body is not None
        problem = _bad_value(piece.body.bad[0])
    flow.hold(problem)
    fleet.hold(caravan_flow, problem.text)
    _log.error("%s is %s", flow.name, problem, extra=flow.about)


def _bad_value(bad: BadUpdate) -> Problem:
    return Problem(
        f"held before {bad.id} at {bad.position}: the value in {bad.table} is not what value_format says: {bad.why}",
        'declare the format that it has, or set on_bad_value = "deliver"',
        code="value-undecodable",
    )


def ask_about_gap(
    fleet: Fleet, flow: PublisherFlow, caravan_flow: CaravanFlow, piece: Piece
) -> tuple[LogGap, Datamarker]:
    """Hold the flow at missing log until its application decides. Returns the missing range, and where the log
    continues after it.
    """
    caravan = fleet.caravan_of(caravan_flow)
    cursor = caravan_flow.cursor
    assert piece.gap is not None
    assert caravan is not None
    assert cursor is not None
    entry = caravan.buffer.entry(cursor)
    assert entry is not None
    begin: LogPosition = entry.segment.begin
    before = caravan_flow.marker
    gap = piece.gap.without(before.delivered)
    # Transactions that were prepared before the gap may be committed after it.
    read_from = before.read_from if before.read_from < before.order else begin
    behind = entry.segment.marker
    anchor = behind.anchor if behind is not None and behind.order == begin else None
    if anchor is not None:
        read_from = min(read_from, anchor.begin)
    resume = Datamarker(begin, gap.delivered or before.delivered, read_from, anchor, before.committed_at_us)
    fleet.hold(caravan_flow, gap.message)
    flow.ask(gap, resume)
    _log.error("data loss for %s: %s", flow.name, gap.message, extra=flow.about)
    return gap, resume
