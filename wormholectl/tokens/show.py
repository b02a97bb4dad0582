"""Declares the columns of the tables of tokens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from wormhole.coordination.access_tokens import AccessToken
from wormholectl.show.columns import ShownColumn, ShownTable
from wormholectl.show.printer import local, utc

__all__ = ["HeldToken", "held_tokens_table", "tokens_table"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class HeldToken:
    """A token of an application. ``configured``: whether the application is configured. If not, the token admits no
    subscriber."""

    application: str
    configured: bool
    token: AccessToken


def tokens_table(now: float) -> ShownTable[AccessToken]:
    """The table of one application's tokens, with their state at ``now`` (seconds since 1970)."""
    return ShownTable[AccessToken](*_columns(now, lambda token: token))


def held_tokens_table(now: float) -> ShownTable[HeldToken]:
    """The table of tokens of several applications. In JSON, an item is one of ``tokens`` in docs/cli-schema.json."""
    return ShownTable[HeldToken](
        ShownColumn("APPLICATION", "application", lambda held: held.application),
        *_columns(now, lambda held: held.token),
        ShownColumn("CONFIGURED", "configured", lambda held: held.configured, _yes),
    )


def _columns(now: float, token: Callable[[_T], AccessToken]) -> tuple[ShownColumn[_T], ...]:
    return (
        ShownColumn("ID", "id", lambda row: token(row).id),
        ShownColumn("CREATED", None, lambda row: token(row).created, local),
        ShownColumn(None, "created", lambda row: utc(token(row).created)),
        ShownColumn("EXPIRES", None, lambda row: token(row).expires or None, local),
        ShownColumn(None, "expires", lambda row: utc(token(row).expires) if token(row).expires else None),
        ShownColumn("VALID", "valid", lambda row: token(row).is_valid(now), _yes),
    )


def _yes(value: bool) -> str:
    return "yes" if value else "no"
