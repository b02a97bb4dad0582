"""The doctor's findings about the privilege that a backfill needs. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from datastores.mysql.server.grants import grant_for, select_grants
from datastores.mysql.server.required_settings import grant_to
from datastores.mysql.server.settings import Settings
from wormhole.model.findings import Finding, Severity
from wormhole.model.visible import few

__all__ = ["findings"]


def findings(settings: Settings, existing: Sequence[str]) -> Iterator[Finding]:
    """Findings on whether the account may read the tables of the patterns ``existing``, for a backfill.

    The server hides tables without a privilege, so a backfill of a pattern skips them unnoticed.
    """
    if settings.anonymous:
        return
    held = select_grants(settings)
    lacking = held.lacking(existing)
    if lacking:
        scopes = dict.fromkeys(grant_for(pattern, literal=held.literal) for pattern in lacking)
        if "*.*" in scopes:
            scopes = dict.fromkeys(["*.*"])
        some = {".".join(name) for name in held.columns} & set(lacking)
        columns = f"; of {few(sorted(some))} some columns only" if some else ""
        yield Finding(
            "existing_rows",
            Severity.PROBLEM,
            f"existing rows of {few(lacking)} are wanted, and {settings.account} has SELECT on {held} only{columns}",
            "the server hides tables without the privilege: their rows are not sent, and a pattern passes them over",
            "\n".join(grant_to(settings, "SELECT", scope) for scope in scopes),
        )
    elif existing:
        yield Finding(
            "existing_rows", Severity.OK, f"{settings.account} has SELECT on all tables of {few(list(existing))}"
        )
    elif not held.everywhere and (held.tables or any(selects for _, selects in held.databases)):
        yield Finding(
            "existing_rows",
            Severity.OK,
            f"{settings.account} has SELECT on {held}; a backfill sees no other table",
            next_step="`wormholectl doctor URL -c FILE.toml` compares that with the applications of a configuration",
        )
