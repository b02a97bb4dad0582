"""The noun ``tokens``: makes, lists and revokes the tokens with which subscribers dial publishers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Annotated, Final

import typer

from wormhole.host.where import Where
from wormhole.model.errors import UsageError
from wormholectl.shared.confirm import confirm
from wormholectl.shared.options import AsJson, Yes, now, with_where
from wormholectl.show.printer import print_json, print_notes, print_text

if TYPE_CHECKING:
    from wormhole.coordination.access_tokens import AccessToken
    from wormhole.coordination.port import Coordinator
    from wormholectl.tokens.show import HeldToken

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Give subscribers that dial a token in place of a certificate.")

Application = Annotated[str, typer.Argument(metavar="APP", help="The application.", show_default=False)]
Named = Annotated[str, typer.Argument(metavar="[APP]", help="The application; without it all.", show_default=False)]

_LAST_ONE: Final = "no subscriber of it can dial with a token from then on"


@app.command("create", epilog="Example:\n\n  wormholectl tokens create cache --expires 90d -c shop.toml")
@with_where
def tokens_create(
    application: Application,
    where: Where,
    expires: Annotated[
        str, typer.Option("--expires", metavar="DURATION", help="How long it is valid, up to 366d; else until revoked.")
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make a token of an application and print it, once: only its hash is stored. Two can be valid at a time, so that
    subscribers change from one to the next without a pause.
    """
    from wormhole.admin.discovery import with_coordinator
    from wormhole.coordination.access_tokens import new_token, with_token
    from wormhole.model.units import parse_duration

    try:
        valid_s = parse_duration(expires) if expires else 0.0
    except ValueError as error:
        raise UsageError(f"--expires {error}") from None
    at = now()
    text, token = new_token(at, at + valid_s if expires else 0.0)
    with_coordinator(
        where, lambda coordinator: coordinator.application(application)
    )  # raises unless the application is configured
    _, notes = _change(where, application, "tokens create", lambda old: (with_token(old, token, application), token))
    if as_json:
        print_json({"application": application, "token": text, **_object(token), "notes": notes})
        return
    print_text(text)
    print_notes([f"it is shown this once; its id is {token.id}; a subscriber takes it as WORMHOLE_TOKEN", *notes])


@app.command("list", epilog="Example:\n\n  wormholectl tokens list cache -c shop.toml --json")
@with_where
def tokens_list(where: Where, application: Named = "", as_json: AsJson = False) -> None:
    """List the tokens of an application, or of all, also of those that are not configured any more."""
    from wormhole.admin.discovery import with_coordinator
    from wormholectl.tokens.show import held_tokens_table

    found = with_coordinator(where, lambda coordinator: _held(coordinator, application))
    table = held_tokens_table(now())
    if as_json:
        print_json({"application": application or None, "tokens": table.objects(found)})
    else:
        table.show(found, f"{application or 'no application'} has {'no ' if application else ''}tokens")


@app.command("revoke", epilog="Example:\n\n  wormholectl tokens revoke cache 5f0c2a91 -c shop.toml --yes")
@with_where
def tokens_revoke(
    application: Application,
    token_id: Annotated[
        str, typer.Argument(metavar="ID", help="As `wormholectl tokens list` shows it.", show_default=False)
    ],
    where: Where,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Revoke a token, also of an application that is not configured any more. Streams that it admitted end within
    seconds.
    """
    confirm(f"Revoke the token {token_id} of {application}?", yes)

    def without(known: Collection[AccessToken]) -> tuple[tuple[AccessToken, ...], AccessToken]:
        revoked = [token for token in known if token.id == token_id]
        if not revoked:
            raise UsageError(
                f"{application} has no token of that id",
                hint=f"`wormholectl tokens list {application}` lists its tokens",
                code="token-refused",
            )
        return tuple(token for token in known if token.id != token_id), revoked[0]

    token, notes = _change(where, application, "tokens revoke", without)
    if as_json:
        print_json({"application": application, **_object(token), "notes": notes})
    else:
        print_text(f"the token {token_id} of {application} is revoked: streams that it admitted end within seconds")
        print_notes(notes)


_Change = Callable[[Collection["AccessToken"]], tuple[tuple["AccessToken", ...], "AccessToken"]]


def _change(where: Where, application: str, what: str, change: _Change) -> tuple[AccessToken, list[str]]:
    """Apply ``change`` to the application's stored tokens. Returns the changed token, and notes."""
    from wormhole.admin.discovery import with_coordinator
    from wormhole.coordination.current_user import current_user
    from wormhole.coordination.port import HistoryEntry
    from wormhole.model.errors import WormholeError

    async def apply(coordinator: Coordinator) -> tuple[AccessToken, list[str]]:
        known = await _stored(coordinator, application)
        tokens, changed = change(known)
        await coordinator.set_tokens(application, tokens, known)
        before, after = (", ".join(token.id for token in some) or "none" for some in (known, tokens))
        notes = [] if tokens else [f"{application} has no tokens now: {_LAST_ONE}"]
        try:
            await coordinator.record(HistoryEntry(now(), current_user(), what, application, before, after))
        except WormholeError as error:
            notes.append(f"it is missing in the history: {error}")
        return changed, notes

    return with_coordinator(where, apply)


async def _stored(coordinator: Coordinator, application: str) -> tuple[AccessToken, ...]:
    """The tokens of an application. Raises :class:`~wormhole.model.errors.WormholeError` for an application that is not
    configured and has no tokens.
    """
    tokens = await anext(coordinator.watch_tokens(application))
    if not tokens:
        await coordinator.application(application)
    return tokens


async def _held(coordinator: Coordinator, application: str) -> list[HeldToken]:
    """The tokens of ``application``; if it is empty, the tokens of all applications."""
    from wormholectl.tokens.show import HeldToken

    configured = await anext(coordinator.watch_applications())
    names = (application,) if application else await coordinator.token_holders()
    return [HeldToken(name, name in configured, token) for name in names for token in await _stored(coordinator, name)]


def _object(token: AccessToken) -> dict[str, object]:
    from wormholectl.tokens.show import tokens_table

    return tokens_table(now()).object(token)
