"""``flows dead-letters``: updates that were parked because their handler failed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.options import AsJson, FlowName, Yes, with_where

if TYPE_CHECKING:
    from wormholectl.discovery import Where

__all__ = ["app"]

_EXAMPLES: Final = """Examples:

  wormholectl flows dead-letters -c shop.toml

  wormholectl flows dead-letters --flow cache/db1 --limit 10 --json
"""

app = typer.Typer(invoke_without_command=True, epilog=_EXAMPLES)

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Show so many of each publisher.")]
Key = Annotated[str, typer.Option("--key", metavar="KEY", help="Only those of this key, as the list shows it.")]


@app.callback()
@with_where
def dead_letters(
    ctx: typer.Context,
    where: Where,
    flow: Annotated[str, typer.Option("--flow", metavar="APP/SHARD", help="Only those of this flow.")] = "",
    limit: Limit = 100,
    as_json: AsJson = False,
) -> None:
    """List parked updates: flow, update, key, since when and why."""
    if ctx.invoked_subcommand is None:
        _list(where, flow, limit, as_json)


@app.command("list", epilog="Example:\n\n  wormholectl flows dead-letters list cache/db1 -c shop.toml")
@with_where
def of_flow(flow: FlowName, where: Where, limit: Limit = 100, as_json: AsJson = False) -> None:
    """List the parked updates of one flow."""
    _list(where, flow, limit, as_json)


def _list(where: Where, flow: str, limit: int, as_json: bool) -> None:
    from wormholectl.dead_letter_listing import show

    raise typer.Exit(show(where, flow, limit, as_json))


@app.command(epilog="Example:\n\n  wormholectl flows dead-letters retry cache/db1 --key '\"user:7\"' -c shop.toml")
@with_where
def retry(flow: FlowName, where: Where, key: Key = "", yes: Yes = False, as_json: AsJson = False) -> None:
    """Deliver parked updates again, in order; those that fail are parked again. Without --key: of every key."""
    from wormhole.wire.v1.admin_pb2 import ChangeRequest, RetryDeadLetters
    from wormholectl.changing import Manner, change_flow

    request = ChangeRequest(flow=flow, retry_dead_letters=RetryDeadLetters(key=key))
    question = f"Deliver what is parked of {f'key {key}' if key else 'every key'} to {flow} again?"
    change_flow(where, request, question, Manner(yes, as_json))


@app.command(epilog="Example:\n\n  wormholectl flows dead-letters discard cache/db1 --all -c shop.toml")
@with_where
def discard(
    flow: FlowName,
    where: Where,
    key: Key = "",
    everything: Annotated[bool, typer.Option("--all", help="Those of every key.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Forget parked updates: they are never delivered."""
    from wormhole.wire.v1.admin_pb2 import ChangeRequest, DiscardDeadLetters
    from wormholectl.changing import Manner, change_flow

    if bool(key) == everything:
        raise UsageError("give either --key KEY or --all", hint="`wormholectl flows dead-letters` shows the keys")
    request = ChangeRequest(flow=flow, discard_dead_letters=DiscardDeadLetters(key=key))
    question = f"Forget what is parked of {f'key {key}' if key else 'every key'} of {flow}?"
    change_flow(where, request, question, Manner(yes, as_json))
