"""The commands ``lag``, ``why-lag`` and ``top`` with their options and help."""

from typing import Annotated, Final

import typer

from wormhole.model.errors import Retryable
from wormholectl.shared.options import ApplicationName, AsJson, FlowName, Where, duration, with_where

__all__ = ["app"]

app = typer.Typer()

_LAG_EXAMPLES: Final = """Exit codes: 0 in time, 1 late, 3 not known because a publisher or its log cannot be reached.

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
    from wormholectl.lag.show import show_verdict
    from wormholectl.lag.verdict import LagVerdict, judge

    most_s = duration("--max", most)
    try:
        verdict = judge(application, most_s, admin_service.ask(where))
    except Retryable as error:
        verdict = LagVerdict(application, most_s, (), (str(error),))
    show_verdict(verdict, as_json)
    raise typer.Exit(verdict.exit_code)


@app.command("why-lag", epilog="Example:\n\n  wormholectl why-lag cache/db1 -c shop.toml")
@with_where
def why_lag(flow: FlowName, where: Where, as_json: AsJson = False) -> None:
    """Say which stage holds a flow up - log, decode, filter, credit, network or handler - and what to do next."""
    from wormhole.admin import admin_service
    from wormholectl.lag.show import show_diagnosis
    from wormholectl.lag.why import diagnose

    owner, status = admin_service.owner_of(admin_service.ask(where), flow)
    assert owner.status is not None
    show_diagnosis(owner.status, status, diagnose(owner.status, status), as_json)


@app.command(epilog="Example:\n\n  wormholectl top -c shop.toml")
@with_where
def top(
    where: Where,
    every: Annotated[str, typer.Option("--every", metavar="DURATION", help="How often to ask.")] = "1s",
) -> None:
    """Watch publishers, caravans and flows live, the flow that is most behind first; q ends."""
    from wormholectl.lag.top import watch

    watch(where, max(duration("--every", every), 0.1))
