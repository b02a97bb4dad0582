"""Prints whether an application is late, and why a flow is behind, as lines or as JSON objects."""

from __future__ import annotations

from typing import Final

from wormhole.admin.admin_service import publisher_name
from wormhole.wire.backfills import backfill_text
from wormhole.wire.lag import lag_of
from wormhole.wire.v1 import admin_pb2
from wormholectl.exit_codes import BROKEN, UNREACHABLE
from wormholectl.lag.verdict import LagVerdict
from wormholectl.lag.why import Diagnosis, LagStage
from wormholectl.show.backfills import BACKFILL
from wormholectl.show.flows import lag_text
from wormholectl.show.lists import condition_object
from wormholectl.show.places import Status
from wormholectl.show.printer import print_json, print_line, print_text, span

__all__ = ["show_diagnosis", "show_verdict"]

_VERDICTS: Final = {0: "ok", BROKEN: "late", UNREACHABLE: "unreachable"}


def show_verdict(verdict: LagVerdict, as_json: bool) -> None:
    """Print the verdict on one line."""
    if not as_json:
        print_text(" ".join(verdict.line().split()))
        return
    flows = [
        {
            "flow": one.flow,
            "lag_s": one.lag.seconds or 0.0,
            "lag_unknown": one.lag.unknown or None,
            "lag_bytes": one.lag.bytes,
            "lag_transactions": one.lag.transactions,
            "state": one.state,
            "condition": condition_object(one.condition),
        }
        for one in verdict.flows
    ]
    print_json(
        {
            "application": verdict.application,
            "max_s": verdict.most_s,
            "verdict": _VERDICTS[verdict.exit_code],
            "lag_s": flows[0]["lag_s"] if flows else None,
            "flows": flows,
            "unreachable": list(verdict.silent),
        }
    )


def show_diagnosis(status: Status, flow: admin_pb2.FlowStatus, found: Diagnosis, as_json: bool) -> None:
    """Print the lag of a flow, the stage that delays it, the figures and the next step. ``status``: the status of its
    publisher.
    """
    if as_json:
        print_json(
            {
                "publisher": publisher_name(status),
                "flow": flow.flow,
                "lag_s": flow.lag_s,
                "stage": found.stage.value,
                "what": found.what,
                "because": list(found.because),
                "code": found.code or None,
                "next_step": found.next_step or None,
                "slowest_table": found.slowest_table or None,
                "slowest_s": found.slowest_s if found.slowest_table else None,
                "backfill": BACKFILL.object(flow.backfill) if flow.HasField("backfill") else None,
            }
        )
        return
    name = f"{found.stage.value}: " if found.stage is not LagStage.NONE else ""
    print_line([(f"{flow.flow}  ", "bold"), (f"{lag_text(lag_of(status, flow))} behind", "")])
    code = f" [{found.code}]" if found.code else ""
    print_line([(name, "bold yellow"), (f"{found.what}{code}", "")])
    for figure in found.because:
        print_line([(f"  {figure}", "dim")])
    if found.slowest_table:
        print_line([("  slowest callback lately: ", "dim"), (f"{found.slowest_table}, {span(found.slowest_s)}", "")])
    if found.next_step:
        print_line([("  next: ", ""), (found.next_step, "")])
    if backfill := backfill_text(flow):
        print_line([(backfill, "")])
        if flow.backfill.waits.hint:
            print_line([("  next: ", ""), (flow.backfill.waits.hint, "")])
