"""Explains from the server's message why it refuses a session, and what repairs it. libpq has no code for this."""

from __future__ import annotations

import re
from typing import Final

from datastores.postgres.server.address import Address
from datastores.postgres.sql_text import quote_identifier
from wormhole.model.errors import SourceUnavailable, UsageError

__all__ = ["refused_login"]

_NO_ROLE: Final = re.compile(r'role ".*" does not exist')
_NO_DATABASE: Final = re.compile(r'database ".*" does not exist')


def refused_login(
    address: Address, words: str, *, needs_password: bool, used_password: bool
) -> SourceUnavailable | UsageError:
    """The error for a session that the server refused with the message ``words``.

    It is a retryable error if an operator may remove the cause while a publisher runs.
    """
    message = f"{address}: {words}"
    quoted = quote_identifier(address.user)
    if hint := _repair(address, quoted, words) or _repair_of_way(address, words):
        return SourceUnavailable(message, hint=hint, code="login-refused")
    if _NO_DATABASE.search(words):
        return UsageError(
            message, hint="correct the database's name, behind the last / of the URL", code="login-refused"
        )
    if needs_password:
        return UsageError(
            f"{message}: {address.password_from}",
            hint="name a password file: --password-file, or password_file in the configuration",
            code="login-refused",
        )
    if used_password:
        hint = "correct the account, its password or its rights"
        if "password authentication failed" in words:  # also if the account does not exist
            hint = (
                f"correct the password, or make the account, as a superuser:\n"
                f"CREATE ROLE {quoted} LOGIN REPLICATION PASSWORD '...';\nGRANT pg_read_all_data TO {quoted};"
            )
        return UsageError(f"{message}: {address.password_from}", hint=hint, code="login-refused")
    return SourceUnavailable(
        message,
        hint="check that the server runs, takes connections at this address (listen_addresses) and lets the account in "
        "(pg_hba.conf); a retry follows",
    )


def _repair(address: Address, quoted: str, words: str) -> str:
    if "max_wal_senders" in words:
        return (
            "each reader needs a walsender of its own: raise max_wal_senders (10 is the default), which takes a "
            "restart of the server, or lower caravans.max of the dataset"
        )
    if "too many" in words or "reserved for" in words:
        return "raise max_connections, or the limit of the account or the database; a retry follows"
    if "REPLICATION attribute" in words or "replication role" in words:
        return f"give the account the right; a retry follows:\nALTER ROLE {quoted} REPLICATION;"
    if "no pg_hba.conf entry" in words:
        plain = "write ?sslmode=require behind the URL, if the server lets sessions with TLS in; else " * (
            address.sslmode == "disable"
        )
        return (
            f"{plain}let the account in with a line of pg_hba.conf, then SELECT pg_reload_conf(); a retry follows:\n"
            f"hostssl {address.database} {address.user} ADDRESS/32 scram-sha-256"
        )
    if _NO_ROLE.search(words):
        return f"make the account, as a superuser; a retry follows:\nCREATE ROLE {quoted} LOGIN REPLICATION;"
    return ""


def _repair_of_way(address: Address, words: str) -> str:
    if "unsupported startup parameter" in words:
        return (
            "a connection pooler answers at this address, which passes no log on: name the server behind it "
            "in the URL; a retry follows"
        )
    if "does not support SSL" in words:
        return "let the server offer TLS (ssl = on), or leave sslmode and sslrootcert out of the URL; a retry follows"
    if "certificate verify failed" in words or ("root certificate file" in words and "does not exist" in words):
        given = f", and {address.sslrootcert} is not" if address.sslrootcert else ""
        return (
            f"name the file of the authority that signed the server's certificate{given}: "
            "?sslmode=verify-full&sslrootcert=/path/of/ca.pem; a retry follows"
        )
    if "does not match host name" in words:
        return "write the host as the server's certificate names it; a retry follows"
    return ""
