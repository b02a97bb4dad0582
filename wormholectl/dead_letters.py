"""``flows dead-letters``: updates that were parked because their handler failed."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.flow_change import change_flow
from wormholectl.guard import UNREACHABLE
from wormholectl.options import AsJson, FlowName, Yes, with_where
from wormholectl.show.printer import SCHEMA, print_json, print_table, print_text

if TYPE_CHECKING:
    from wormhole.wire.v1 import admin_pb2
    from wormholectl.discovery import Where

__all__ = ["app", "letter_object", "show"]

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
        raise typer.Exit(show(where, flow, limit, as_json))


@app.command("list", epilog="Example:\n\n  wormholectl flows dead-letters list cache/db1 -c shop.toml")
@with_where
def of_flow(flow: FlowName, where: Where, limit: Limit = 100, as_json: AsJson = False) -> None:
    """List the parked updates of one flow."""
    raise typer.Exit(show(where, flow, limit, as_json))


@app.command(epilog="Example:\n\n  wormholectl flows dead-letters retry cache/db1 --key '\"user:7\"' -c shop.toml")
@with_where
def retry(flow: FlowName, where: Where, key: Key = "", yes: Yes = False, as_json: AsJson = False) -> None:
    """Deliver parked updates again, in order; those that fail are parked again. Without --key: of every key."""
    question = f"Deliver what is parked of {f'key {key}' if key else 'every key'} to {flow} again?"
    change_flow(where, flow, question, yes, as_json, retry_dead_letters={"key": key})


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
    if bool(key) == everything:
        raise UsageError("give either --key KEY or --all", hint="`wormholectl flows dead-letters` shows the keys")
    question = f"Forget what is parked of {f'key {key}' if key else 'every key'} of {flow}?"
    change_flow(where, flow, question, yes, as_json, discard_dead_letters={"key": key})


def show(where: Where, flow: str, limit: int, as_json: bool) -> int:
    """Print at most ``limit`` parked updates of each publisher, of one flow or (empty) of all. Returns the exit code.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    from wormholectl import admin_client
    from wormholectl.show.lists import publisher_name

    answers = admin_client.ask(where)
    if flow:
        answers = [admin_client.owner_of(answers, flow)[0]]
    objects: list[dict[str, Any]] = []
    total = 0
    for answer in answers:
        if answer.status is None:
            continue
        reply = admin_client.dead_letters(answer, flow, limit)
        total += reply.total
        objects += [{"publisher": publisher_name(answer.status), **letter_object(one)} for one in reply.letters]
    silent = [answer for answer in answers if answer.status is None]
    if as_json:
        unreachable = [{"address": answer.address, "problem": answer.problem} for answer in silent]
        print_json({"schema": SCHEMA, "total": total, "dead_letters": objects, "unreachable": unreachable})
    else:
        columns = ("FLOW", "UPDATE", "TABLE", "KEY", "OP", "PARKED", "ERROR")
        rows = [
            (
                one["flow"],
                one["update"],
                one["table"] or "-",
                one["key"],
                one["op"],
                f"{datetime.fromisoformat(one['parked_at']).astimezone():%Y-%m-%d %H:%M:%S}",
                f"{'(delivered again now) ' if one['retrying'] else ''}{one['error']}",
            )
            for one in objects
        ]
        print_table(columns, rows, "no dead letters")
        if total > len(objects):
            print_text(f"{len(objects):,} of {total:,}; --limit shows more")
    for answer in silent:
        print_text(f"warning: {answer.problem}", error=True)
    return UNREACHABLE if silent else 0


def letter_object(letter: admin_pb2.DeadLetter) -> dict[str, Any]:
    """One parked update for programs (docs/cli-schema.json: ``dead-letter``)."""
    return {
        "flow": letter.flow,
        "update": letter.update_id,
        "table": letter.table or None,
        "key": letter.key,
        "op": letter.op,
        "parked_at": datetime.fromtimestamp(letter.parked_at_s, UTC).isoformat().replace("+00:00", "Z"),
        "error": letter.error,
        "bytes": letter.bytes,
        "retrying": letter.retrying,
    }
