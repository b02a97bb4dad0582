"""The noun ``flows dead-letters``: lists, retries and discards updates that are parked since their handler failed."""

from typing import Annotated, Final

import typer

from wormhole.model.errors import UsageError
from wormholectl.exit_codes import UNREACHABLE
from wormholectl.shared.flow_change import change_flow
from wormholectl.shared.options import AsJson, FlowName, Where, Yes, with_where
from wormholectl.show.printer import print_json, print_text, print_warnings

__all__ = ["app"]

_EXAMPLES: Final = """Examples:

  wormholectl flows dead-letters -c shop.toml

  wormholectl flows dead-letters --flow cache/db1 --limit 10 --json
"""

app = typer.Typer(invoke_without_command=True, epilog=_EXAMPLES)

Limit = Annotated[int, typer.Option("--limit", "-n", min=1, max=10_000, help="Show this many of each publisher.")]
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
        _show(where, flow, limit, as_json)


@app.command("list", epilog="Example:\n\n  wormholectl flows dead-letters list cache/db1 -c shop.toml")
@with_where
def of_flow(flow: FlowName, where: Where, limit: Limit = 100, as_json: AsJson = False) -> None:
    """List the parked updates of one flow."""
    _show(where, flow, limit, as_json)


@app.command(epilog="Example:\n\n  wormholectl flows dead-letters retry cache/db1 --key '\"user:7\"' -c shop.toml")
@with_where
def retry(
    flow: FlowName,
    where: Where,
    key: Key = "",
    anyone: Annotated[
        bool,
        typer.Option("--any-subscriber", help="Also to a subscriber that did not park them, such as a restarted one."),
    ] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Deliver parked updates again, in order; those that fail are parked again. Without --key: of every key."""
    from wormhole.admin import Admin, Change

    question = f"Deliver what is parked of {f'key {key}' if key else 'every key'} to {flow} again?"

    def again(preview: bool) -> Change:
        return Admin(where).retry_dead_letters(flow, key, anyone=anyone, preview=preview)

    change_flow(question, again, yes, as_json)


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
    from wormhole.admin import Admin

    if bool(key) == everything:
        raise UsageError("give either --key KEY or --all", hint="`wormholectl flows dead-letters` shows the keys")
    question = f"Forget what is parked of {f'key {key}' if key else 'every key'} of {flow}?"
    change_flow(question, lambda preview: Admin(where).discard_dead_letters(flow, key, preview=preview), yes, as_json)


def _show(where: Where, flow: str, limit: int, as_json: bool) -> None:
    """Print at most ``limit`` parked updates of each publisher, for the given flow or (empty) for all flows."""
    from wormhole.admin import admin_service
    from wormhole.admin.admin_service import publisher_name
    from wormholectl.flows.show_dead_letters import LETTERS
    from wormholectl.show.lists import unreachable_objects

    answers = admin_service.ask(where)
    if flow:
        answers = [admin_service.owner_of(answers, flow)[0]]
    answering = [(answer, answer.status) for answer in answers if answer.status is not None]
    replies = [(publisher_name(status), admin_service.dead_letters(one, flow, limit)) for one, status in answering]
    total = sum(reply.total for _, reply in replies)
    silent = [answer for answer in answers if answer.silent]
    if as_json:
        objects = [{"publisher": name, **LETTERS.object(one)} for name, reply in replies for one in reply.letters]
        print_json({"total": total, "dead_letters": objects, "unreachable": unreachable_objects(silent)})
    else:
        letters = [one for _, reply in replies for one in reply.letters]
        LETTERS.show(letters, "no dead letters")
        if total > len(letters):
            print_text(f"{len(letters):,} of {total:,}; --limit shows more")
    print_warnings(answer.problem for answer in answers if answer.status is None)
    raise typer.Exit(UNREACHABLE if silent else 0)
