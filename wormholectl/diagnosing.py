"""``wormholectl why-lag``: the diagnosis of one flow, for a person and for a program."""

from __future__ import annotations

from wormholectl import admin_client
from wormholectl.discovery import Where
from wormholectl.flow_listing import lag_text
from wormholectl.listing import publisher_name
from wormholectl.output import print_json, print_line, span
from wormholectl.render import SCHEMA
from wormholectl.why_lag import Stage, diagnose

__all__ = ["explain"]


def explain(where: Where, flow: str, as_json: bool) -> None:
    """Ask the flow's publisher and print what holds the flow up. Raises :class:`~wormhole.model.errors.WormholeError`."""
    owner, told = admin_client.owner_of(admin_client.ask(where), flow)
    assert owner.status is not None
    found = diagnose(owner.status, told)
    if as_json:
        print_json(
            {
                "schema": SCHEMA,
                "publisher": publisher_name(owner.status),
                "flow": flow,
                "lag_s": told.lag_s,
                "stage": found.stage.value,
                "what": found.what,
                "because": list(found.because),
                "next_step": found.next_step or None,
                "slowest_table": found.slowest_table or None,
                "slowest_s": found.slowest_s if found.slowest_table else None,
            }
        )
        return
    name = f"{found.stage.value}: " if found.stage is not Stage.NONE else ""
    print_line([(f"{flow}  ", "bold"), (f"{lag_text(told)} behind", "")])
    print_line([(name, "bold yellow"), (found.what, "")])
    for figure in found.because:
        print_line([(f"  {figure}", "dim")])
    if found.slowest_table:
        print_line([("  slowest callback lately: ", "dim"), (f"{found.slowest_table}, {span(found.slowest_s)}", "")])
    if found.next_step:
        print_line([("  next: ", ""), (found.next_step, "")])
