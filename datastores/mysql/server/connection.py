"""Opens connections to a server, runs queries, and translates the driver's errors."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, cast

import pymysql
from pymysql.connections import Connection
from pymysql.cursors import DictCursor

from datastores.mysql.server.address import Address
from datastores.mysql.server.handshake import ServerConnection
from datastores.mysql.server.login import Login
from datastores.mysql.sql_text import literal
from wormhole.model.errors import (
    DecodeError,
    PositionError,
    SourceSilent,
    SourceUnavailable,
    UnsupportedLog,
    UsageError,
    WormholeError,
)

__all__ = [
    "LONGEST_TEXT",
    "bound",
    "connect",
    "login_of",
    "query",
    "reading_answers",
    "server_text",
    "translate",
    "translating",
]

# Error numbers: https://dev.mysql.com/doc/mysql-errors/8.4/en/ and
# https://mariadb.com/kb/en/mariadb-error-code-reference/.
# Errors that an operator must repair: the numbers, the refusal, and the next step.
_REFUSALS: Final = (
    (
        {1045, 1698},
        "the server refuses the account or its password: {text}{source}",
        "give the password with --password-file (password_file in the configuration) or in ~/.my.cnf",
    ),
    (
        {1130},
        "the server takes no connections from this host: {text}",
        "CREATE USER {quoted_user}@'<this host>' IDENTIFIED BY ...; and grant it what `wormholectl doctor` says",
    ),
    (
        {1820, 1862, 3118, 4151},
        "the account cannot be used: {text}",
        "ALTER USER ... as an administrator",
    ),
    (
        {1044, 1142, 1143, 1227, 1370},
        "a privilege is missing: {text}",
        "`wormholectl doctor URL` shows which to grant",
    ),
    (
        {2059, 2061, 1251, 1524},
        "the account's authentication plugin is not supported: {text}",
        "ALTER USER ... IDENTIFIED WITH caching_sha2_password (MariaDB: mysql_native_password) BY ...",
    ),
    (
        {2026},
        "TLS is asked for and the server offers none",
        "let the server have a certificate (ssl_cert, ssl_key), or write tls=prefer",
    ),
)
# A password was sent, and `host` is the host for which the server searched accounts. Only characters that are safe in
# SQL match, because the server chooses the text.
_SHADOWED: Final = re.compile(r"@'(?P<host>[\w.:-]+)' \(using password: YES\)", re.ASCII)
_SHADOW_HINT: Final = (
    "; where it is right, an anonymous account ''@{quoted_host} may shadow {quoted_user}@'%'; as an administrator:\n"
    "SELECT User, Host FROM mysql.user WHERE User IN ('', {quoted_user});\n"
    "and, if '' is listed:\n"
    "DROP USER ''@{quoted_host};"
)
_NONSENSE: Final = (
    "a retry follows; check host and port, and what is between here and the server (a proxy, another service); "
    "if a plain client gets right answers there, report this"
)
# Settings that the server or init_connect may have changed so that a session or a statement ends, is refused or returns
# values in another form. Only servers of its version run a version comment; M: MariaDB.
_SETTINGS: Final = (
    "SET SESSION sql_mode = '', time_zone = '+00:00', sql_select_limit = 18446744073709551615, "
    "max_join_size = 18446744073709551615, sql_big_selects = 1, completion_type = 0, sql_auto_is_null = 0, "
    "sql_quote_show_create = 1, wait_timeout = 28800, net_read_timeout = 600, net_write_timeout = 600"
    "/*!50708 , max_execution_time = 0 */"
    "/*M!100300 , max_statement_time = 0, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0, "
    "idle_write_transaction_timeout = 0 */"
)
_MOST_GREETING_BYTES: Final = 1 << 20  # the most bytes of all packets until the connection is open
LONGEST_TEXT: Final = 512
"""The most characters of an error's text that are shown. The server chooses the text."""
_PASSING: Final = frozenset(
    {
        1040,
        1041,
        1053,
        1077,
        1078,
        1079,
        1080,
        1129,
        1152,
        1158,
        1159,
        1160,
        1161,
        1203,
        1205,
        1213,
        1226,
        1317,
        1927,
        1969,
    }
    | {3024, 3168, 3169, 4031}
)


def connect(address: Address, *, timeout_s: float = 10.0) -> Connection[DictCursor]:
    """Open a connection with ``SET NAMES utf8mb4``, autocommit and the product's settings. Opening takes at most
    ``timeout_s``, as does a later query without its own limit.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if there is no valid answer or the server accepts no more
    connections. Raises :class:`~wormhole.model.errors.UsageError` for a wrong account, password or certificate, and if
    an unverified server requests the password itself (:mod:`datastores.mysql.server.login`).
    """
    with translating(address):
        connection: Any = ServerConnection(
            address,
            timeout_s=timeout_s,
            charset="utf8mb4",
            autocommit=True,
            connect_timeout=timeout_s,
            cursorclass=DictCursor,
            program_name="wormhole",
            defer_connect=True,
        )
        connection.bound(most_bytes=_MOST_GREETING_BYTES)
        # If no server listens on a Unix socket, the driver would leave it open.
        connection.connect(_unix_socket(address.socket, timeout_s) if address.socket else None)
        connection.query(_SETTINGS)
        opened: Connection[DictCursor] = connection
        return opened


def login_of(connection: Connection[Any]) -> Login:
    """The login with which ``connection`` was opened."""
    return cast(ServerConnection, connection).login


def query(
    connection: Connection[DictCursor],
    sql: str,
    args: Sequence[object] = (),
    *,
    within_s: float | None = None,
    most_bytes: int | None = None,
) -> list[dict[str, Any]]:
    """Run a statement and return its rows. Raises :class:`~wormhole.model.errors.WormholeError`, see :func:`translate`.

    ``within_s``: seconds for the whole answer, by default those given to :func:`connect`. ``most_bytes``: the most
    bytes of memory for it, by default :data:`~datastores.mysql.server.bounded_connection.MOST_ANSWER_BYTES`. If an
    answer cannot be read, the connection is closed, because the beginning of the next answer is unknown.
    """
    bound(connection, within_s, most_bytes)
    with translating(sql, connection), connection.cursor() as cursor:
        cursor.execute(sql, args or None)
        return list(cursor.fetchall())


def bound(connection: Connection[Any], within_s: float | None = None, most_bytes: int | None = None) -> None:
    """Limit the seconds and bytes of the next answer on ``connection``; see :func:`query`."""
    cast(ServerConnection, connection).bound(within_s, most_bytes)


@contextmanager
def translating(about: Address | str, connection: Connection[Any] | None = None) -> Iterator[None]:
    """Translate every error of the driver or the socket in the block. ``about``: the address or the statement.

    The driver parses packets without checking their form, so a damaged packet may raise any error of Python. It is
    treated like a lost connection, and ``connection`` is closed.
    """
    try:
        yield
    except WormholeError:
        raise
    except (pymysql.MySQLError, OSError) as error:
        raise translate(error, about) from None
    except Exception as error:
        if connection is not None:
            cast(Any, connection)._force_close()
        raise SourceUnavailable(
            f"{about}: the answer is not MySQL's protocol ({type(error).__name__})",
            hint=_NONSENSE,
            code="peer-not-database",
        ) from error


@contextmanager
def reading_answers(about: str) -> Iterator[None]:
    """Turn errors in code that reads rows of :func:`query` into :class:`SourceUnavailable`: no server sends such
    rows."""
    try:
        yield
    except (LookupError, ValueError, TypeError, DecodeError, PositionError) as error:
        raise SourceUnavailable(
            f"{about}: the server's answer is not valid ({type(error).__name__}: {error!s:.200})",
            hint=_NONSENSE,
            code="peer-not-database",
        ) from error


def translate(error: Exception, about: Address | str) -> WormholeError:
    """The product's error for an error of the driver. ``about``: the address or the failed statement, for the message.

    :class:`~wormhole.model.errors.SourceUnavailable`: transient (:class:`~wormhole.model.errors.SourceSilent`: no
    answer in time). :class:`~wormhole.model.errors.UsageError`: account, password, privilege or certificate.
    :class:`~wormhole.model.errors.UnsupportedLog`: the server's version does not have the statement or the log.
    """
    cause = getattr(error, "original_exception", error)
    if isinstance(cause, OSError):
        return _of_socket(cause, about)
    number, text = server_text(error)
    for numbers, what, hint in _REFUSALS:
        if number in numbers:
            user = about.user if isinstance(about, Address) else "wormhole"
            source = f" ({about.password_from})" if isinstance(about, Address) and about.password_from else ""
            shadow = _SHADOWED.search(text)
            if shadow:
                hint += _SHADOW_HINT
            host = literal(shadow["host"] if shadow else "")
            return UsageError(
                f"{about}: {what.format(text=text, source=source)}",
                hint=hint.format(quoted_user=literal(user), quoted_host=host),
                code="login-refused",
            )
    if number in _PASSING or 2000 <= number < 3000 or not number:
        kind = SourceSilent if isinstance(error.__context__, TimeoutError) else SourceUnavailable
        return kind(f"{about}: {text}", hint="a retry follows; look at the server's error log")
    return UnsupportedLog(
        f"{about}: the server reports: {text} (error {number})", hint="`wormholectl doctor URL` may know"
    )


def server_text(error: Exception) -> tuple[int, str]:
    """The number (0: none) and the beginning of the text in an error of the driver."""
    arguments = error.args
    if len(arguments) >= 2 and isinstance(arguments[0], int):
        return arguments[0], str(arguments[1])[:LONGEST_TEXT] or type(error).__name__
    return 0, str(error)[:LONGEST_TEXT] or type(error).__name__


def _of_socket(error: OSError, about: Address | str) -> WormholeError:
    if isinstance(error, ssl.SSLCertVerificationError):
        return UsageError(
            f"{about}: the server's certificate is not accepted: {error.verify_message}",
            hint="name its authority with ca=/path.pem; tls=verify-ca does without the host's name",
            code="certificate-refused",
        )
    if isinstance(error, ssl.SSLError):
        return SourceUnavailable(
            f"{about}: TLS failed: {error.reason or error}",
            hint="look at the server's error log",
            code="certificate-refused",
        )
    if isinstance(error, socket.gaierror):
        return SourceUnavailable(f"{about}: the host's name is not known: {error.strerror}", hint="check the name")
    if isinstance(error, TimeoutError):
        return SourceSilent(f"{about}: no answer in time", hint="check host, port and firewall")
    return SourceUnavailable(f"{about}: {error.strerror or error}", hint="check that the server runs and listens there")


def _unix_socket(path: str, timeout_s: float) -> socket.socket:
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.settimeout(timeout_s)
        made.connect(path)
    except BaseException:
        made.close()
        raise
    return made
