"""The commands about being late: ``lag``, ``why-lag`` and ``top``."""

from typing import Annotated, Final

import typer

from wormhole.model.errors import Retryable
from wormholectl.errors import BROKEN, UNREACHABLE
from wormholectl.options import ApplicationName, AsJson, FlowName, Where, duration, with_where
from wormholectl.show.printer import print_json, print_line, print_text, span

__all__ = ["app"]

app = typer.Typer()

_LAG_EXAMPLES: Final = """Exit codes: 0 in time, 1 late, 3 not known since somebody cannot be reached.

Examples:

  wormholectl lag cache --max 30s -c shop.toml

  wormholectl lag cache --max 5m -c zk1:2181/wormhole --json
"""


@app.command(epilog=_LAG_EXAMPLES)
@with_where
def lag(
    application: ApplicationName,
    where: Where,
    most: Annotated[str, typer.Option("--max", metavar="DURATION", help="How late is still in time.")] = "30s",
    as_json: AsJson = False,
) -> None:
    """Say on one line whether an application's flows are in time: a probe for cron and Nagios."""
    from wormhole.admin import admin_service
    from wormholectl.lag_verdict import Verdict, judge

    most_s = duration("--max", most)
    try:
        verdict = judge(application, most_s, admin_service.ask(where))
    except Retryable as error:
        verdict = Verdict(application, most_s, (), (error.message,))
    if as_json:
        flows = [
            {
                "flow": one.flow,
                "lag_s": one.lag.seconds or 0.0,
                "lag_unknown": one.lag.unknown or None,
                "lag_bytes": one.lag.bytes,
                "lag_transactions": one.lag.transactions,
                "state": one.state,
            }
            for one in verdict.flows
        ]
        print_json(
            {
                "application": application,
                "max_s": most_s,
                "verdict": {0: "ok", BROKEN: "late", UNREACHABLE: "unreachable"}[verdict.exit_code],
                "lag_s": flows[0]["lag_s"] if flows else None,
                "flows": flows,
                "unreachable": list(verdict.silent),
            }
        )
    else:
        print_text(" ".join(verdict.line().split()))
    raise typer.Exit(verdict.exit_code)


@app.command("why-lag", epilog="Example:\n\n  wormholectl why-lag cache/db1 -c shop.toml")
@with_where
def why_lag(flow: FlowName, where: Where, as_json: AsJson = False) -> None:
    """Say which stage holds a flow up - log, decode, filter, credit, network or handler - and what to do next."""
    from wormhole.admin import admin_service
    from wormhole.admin.admin_service import publisher_name
    from wormhole.wire.lag import lag_of
    from wormholectl.show.flows import lag_text
    from wormholectl.why_lag import Stage, diagnose

    owner, told = admin_service.owner_of(admin_service.ask(where), flow)
    assert owner.status is not None
    found = diagnose(owner.status, told)
    if as_json:
        print_json(
            {
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
    print_line([(f"{flow}  ", "bold"), (f"{lag_text(lag_of(owner.status, told))} behind", "")])
    print_line([(name, "bold yellow"), (found.what, "")])
    for figure in found.because:
        print_line([(f"  {figure}", "dim")])
    if found.slowest_table:
        print_line([("  slowest callback lately: ", "dim"), (f"{found.slowest_table}, {span(found.slowest_s)}", "")])
    if found.next_step:
        print_line([("  next: ", ""), (found.next_step, "")])


@app.command(epilog="Example:\n\n  wormholectl top -c shop.toml")
@with_where
def top(
    where: Where,
    every: Annotated[str, typer.Option("--every", metavar="DURATION", help="How often to ask.")] = "1s",
) -> None:
    """Watch publishers, caravans and flows live, the flow that is most behind first; q ends."""
    from wormholectl.top import watch

    watch(where, max(duration("--every", every), 0.1))
