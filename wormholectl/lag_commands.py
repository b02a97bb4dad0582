"""The commands about being late: ``lag``, ``why-lag`` and ``top``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.options import ApplicationName, AsJson, FlowName, with_where

if TYPE_CHECKING:
    from wormholectl.discovery import Where

__all__ = ["app"]

app = typer.Typer()

_LAG_EXAMPLES: Final = """Exit codes: 0 in time, 1 late, 3 not known since somebody cannot be reached.

Examples:

  wormholectl lag cache --max 30s -c shop.toml

  wormholectl lag cache --max 5m -c zk1:2181/wormhole --json
"""


def _seconds(option: str, text: str) -> float:
    from wormhole.config import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UsageError(f"{option} {text}: {error}", hint=f"for example {option} 30s") from None


@app.command(epilog=_LAG_EXAMPLES)
@with_where
def lag(
    application: ApplicationName,
    where: Where,
    most: Annotated[str, typer.Option("--max", metavar="DURATION", help="How late is still in time.")] = "30s",
    as_json: AsJson = False,
) -> None:
    """Say on one line whether an application's flows are in time: a probe for cron and Nagios."""
    from wormholectl.lag_probe import probe

    raise typer.Exit(probe(where, application, _seconds("--max", most), as_json))


@app.command("why-lag", epilog="Example:\n\n  wormholectl why-lag cache/db1 -c shop.toml")
@with_where
def why_lag(flow: FlowName, where: Where, as_json: AsJson = False) -> None:
    """Say which stage holds a flow up - log, decode, filter, credit, network or handler - and what to do next."""
    from wormholectl.diagnosing import explain

    explain(where, flow, as_json)


@app.command(epilog="Example:\n\n  wormholectl top -c shop.toml")
@with_where
def top(
    where: Where,
    every: Annotated[str, typer.Option("--every", metavar="DURATION", help="How often to ask.")] = "1s",
) -> None:
    """Watch publishers, caravans and flows live, the flow that is most behind first; q ends."""
    from wormholectl.top import watch

    watch(where, max(_seconds("--every", every), 0.1))
