"""What the table of tokens shows."""

from __future__ import annotations

from wormhole.coordination.access_tokens import AccessToken
from wormholectl.show.columns import ShownColumn, ShownTable
from wormholectl.show.printer import local, utc

__all__ = ["tokens_table"]


def tokens_table(now: float) -> ShownTable[AccessToken]:
    """The columns, for tokens as they are at ``now``. An object for programs is a ``token`` of docs/cli-schema.json."""
    return ShownTable[AccessToken](
        ShownColumn("ID", "id", lambda token: token.id),
        ShownColumn("CREATED", None, lambda token: token.created, local),
        ShownColumn(None, "created", lambda token: utc(token.created)),
        ShownColumn("EXPIRES", None, lambda token: token.expires or None, local),
        ShownColumn(None, "expires", lambda token: utc(token.expires) if token.expires else None),
        ShownColumn("VALID", "valid", lambda token: token.is_valid(now), lambda valid: "yes" if valid else "no"),
    )
