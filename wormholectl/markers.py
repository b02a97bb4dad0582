"""The noun ``markers``: without a verb it lists datamarkers, and its verbs show, move or forget one."""

from typing import Annotated, Final

import typer

from wormholectl.shared.flow_change import change_flow
from wormholectl.shared.options import AsJson, FlowName, Where, Yes, duration, with_where

__all__ = ["app"]

_EXAMPLES: Final = """Examples:

  wormholectl markers -c shop.toml

  wormholectl markers show cache/db1 --json
"""

app = typer.Typer(invoke_without_command=True, epilog=_EXAMPLES)


@app.callback()
@with_where
def markers(ctx: typer.Context, where: Where, as_json: AsJson = False) -> None:
    """List the datamarkers of all flows. With a verb: one of them."""
    if ctx.invoked_subcommand is None:
        _list(where, "", as_json)


@app.command(epilog="Example:\n\n  wormholectl markers show cache/db1 -c shop.toml")
@with_where
def show(flow: FlowName, where: Where, as_json: AsJson = False) -> None:
    """Show the datamarker of one flow."""
    _list(where, flow, as_json)


def _list(where: Where, flow: str, as_json: bool) -> None:
    from wormhole.admin.admin_service import ask, owner_of
    from wormholectl.show import lists
    from wormholectl.show.flows import MARKERS, one_flow

    answers = ask(where)
    if not flow:
        raise typer.Exit(lists.show(MARKERS, answers, as_json))
    owner, _ = owner_of(answers, flow)
    raise typer.Exit(lists.show(one_flow(MARKERS, flow), [owner], as_json))


@app.command(
    "set",
    epilog=(
        "Examples:\n\n  wormholectl markers set cache/db1 earliest -c shop.toml\n\n  wormholectl markers set "
        "cache/db1 1/42/32768 -c shop.toml"
    ),
)
@with_where
def set_marker(
    flow: FlowName,
    place: Annotated[
        str,
        typer.Argument(
            metavar="PLACE",
            help="earliest, latest, 1/42/32768, or the datastore's own form.",
            show_default=False,
        ),
    ],
    where: Where,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move a flow to a place of the log: what follows it is delivered (again)."""
    from wormhole.admin import Admin

    question = f"Let {flow} go on from {place}?"
    change_flow(question, lambda preview: Admin(where).set_marker(flow, place, preview=preview), yes, as_json)


@app.command(epilog="Example:\n\n  wormholectl markers rewind cache/db1 --since 2h -c shop.toml")
@with_where
def rewind(
    flow: FlowName,
    where: Where,
    since: Annotated[str, typer.Option("--since", metavar="DURATION", help="How far back from now: 90s, 10m, 2h, 1d.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move a flow back in time: what was committed since then is delivered again."""
    from wormhole.admin import Admin

    back = duration("--since", since, "2h")
    question = f"Deliver what was committed in the last {since} to {flow} again?"
    change_flow(question, lambda preview: Admin(where).rewind(flow, back, preview=preview), yes, as_json)


@app.command(epilog="Example:\n\n  wormholectl markers forget cache/db1 -c shop.toml")
@with_where
def forget(flow: FlowName, where: Where, yes: Yes = False, as_json: AsJson = False) -> None:
    """Delete a flow's record: it begins anew where its application's `start` puts it."""
    from wormhole.admin import Admin

    question = f"Forget how far {flow} is?"
    change_flow(question, lambda preview: Admin(where).forget(flow, preview=preview), yes, as_json)
