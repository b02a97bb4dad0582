"""The noun ``flows``: without a verb it lists flows, and its verbs change one flow."""

from typing import Annotated, Final

import typer

from wormholectl.flows import dead_letters
from wormholectl.shared.flow_change import change_flow
from wormholectl.shared.options import AsJson, FlowName, Where, Yes, with_where

__all__ = ["app"]

_EXAMPLES: Final = """Examples:

  wormholectl flows -c shop.toml

  wormholectl flows -c zk1:2181/wormhole --application cache --state held --json

  wormholectl flows --publisher 127.0.0.1:7401
"""

app = typer.Typer(invoke_without_command=True, epilog=_EXAMPLES)
app.add_typer(dead_letters.app, name="dead-letters")


@app.callback()
@with_where
def flows(
    ctx: typer.Context,
    where: Where,
    application: Annotated[
        str, typer.Option("--application", "-a", metavar="APP", help="Only flows of this application.")
    ] = "",
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state", metavar="STATE", help="Only flows in this state (live, catching_up, held, ...); repeatable."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List flows: state, place, datamarker, lag and credit of each. With a verb: change one. A terminal that is too
    narrow lacks some columns and names them; a pipe or a file gets the whole table.
    """
    if ctx.invoked_subcommand is not None:
        return
    from wormhole.admin.admin_service import ask, check_application
    from wormholectl.show import lists
    from wormholectl.show.flows import FLOWS, check_states, flows_where

    check_states(state or ())
    answers = ask(where)
    if application:
        check_application(answers, application)
        answers = [one for one in answers if one.status is not None or one.may_have(application)]
    raise typer.Exit(lists.show(flows_where(FLOWS, application, state or ()), answers, as_json))


@app.command(epilog="Example:\n\n  wormholectl flows pause cache/db1 -c shop.toml")
@with_where
def pause(flow: FlowName, where: Where, yes: Yes = False, as_json: AsJson = False) -> None:
    """Stop delivering a flow until it is resumed; its datamarker stays, also over restarts."""
    from wormhole.admin import Admin

    change_flow(f"Pause {flow}?", lambda preview: Admin(where).pause(flow, preview=preview), yes, as_json)


@app.command(epilog="Example:\n\n  wormholectl flows resume cache/db1 -c shop.toml --yes")
@with_where
def resume(flow: FlowName, where: Where, yes: Yes = False, as_json: AsJson = False) -> None:
    """Let a paused flow go on, or one whose handler failed finally, from its datamarker."""
    from wormhole.admin import Admin

    change_flow(f"Resume {flow}?", lambda preview: Admin(where).resume(flow, preview=preview), yes, as_json)


@app.command(epilog="Example:\n\n  wormholectl flows skip cache/db1 --update db1:42:0 -c shop.toml")
@with_where
def skip(
    flow: FlowName,
    where: Where,
    update: Annotated[
        str, typer.Option("--update", metavar="ID", help="SOURCE:NUMBER:INDEX, as `flows` and logs say it.")
    ],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Pass over one update, so that a flow whose handler cannot process it goes on."""
    from wormhole.admin import Admin

    question = f"Never deliver update {update} to {flow}?"
    change_flow(question, lambda preview: Admin(where).skip(flow, update, preview=preview), yes, as_json)


@app.command("accept-loss", epilog="Example:\n\n  wormholectl flows accept-loss cache/db1 -c shop.toml")
@with_where
def accept_loss(flow: FlowName, where: Where, yes: Yes = False, as_json: AsJson = False) -> None:
    """Let a flow that is held at missing log go on behind it. What is missing is not delivered."""
    from wormhole.admin import Admin

    question = f"Let {flow} go on without what is missing?"
    change_flow(question, lambda preview: Admin(where).accept_loss(flow, preview=preview), yes, as_json)
