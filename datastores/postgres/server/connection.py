"""A session on a server through libpq. Every call has a deadline, and no message holds a password.

A session is for queries, or is a walsender's (``replication=database``). A walsender also takes queries until it begins
to send the log.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
from psycopg import pq

from datastores.postgres.decode.encodings import UTF8, Encoding, encoding_of
from datastores.postgres.decode.kinds import SESSION_SETTINGS
from datastores.postgres.server.address import Address
from datastores.postgres.server.login import Asked, ask, withheld
from datastores.postgres.server.refused_logins import refused_login
from datastores.postgres.server.scram import derive
from datastores.postgres.server.waiting import NEVER, ready
from datastores.postgres.sql_text import quote_literal
from wormhole.model.errors import SourceSilent, SourceUnavailable, UsageError

__all__ = [
    "TIMEOUT_S",
    "Connection",
    "Row",
    "ServerError",
    "SessionEnded",
    "connect",
    "drop_notifications",
    "understood",
]

TIMEOUT_S: Final = 30.0
"""The time limit for connecting, and for a statement without its own timeout."""

Row = tuple[str | None, ...]

_ENDED: Final = frozenset({"57P01", "57P02"})
_NO_SUCH_FILE: Final = "58P01"
_NO_CHARACTER: Final = "22P05"
_LOG_REMOVED: Final = (
    "if the log was reset (pg_resetwal) or files of it removed, no slot shows that: run `wormholectl objects drop` "
    "and `objects create`; flows report what they lack with its range"
)
_HINTS: Final = {
    _NO_SUCH_FILE: _LOG_REMOVED,
    _NO_CHARACTER: "the server converts text of this encoding itself, and ends there: correct the row. For what is "
    "logged already, run `wormholectl objects drop` and `objects create`; flows report what they lack with its range",
}
_COPIES: Final = frozenset({pq.ExecStatus.COPY_BOTH, pq.ExecStatus.COPY_OUT})
_MOST_AT_ONCE: Final = 512 << 10  # the most bytes of a copy's messages that are returned together
_MESSAGE_COST: Final = 64
_MOST_ANSWER: Final = 64 << 20
_ROW_COST: Final = 100  # bytes of memory for a row, besides its values
_VALUE_COST: Final = 60
_RESULT_COST: Final = 4096  # bytes of memory for a result without rows; a statement normally has one
_MOST_TEXT: Final = 2000  # the most characters of a server's message
_NO_FILE: Final = "/nonexistent"  # otherwise libpq searches the user's home for a password
_NOT_GIVEN: Final = b"no password supplied"  # libpq's message
_KEYS_SINCE: Final = 180000  # the libpq version that accepts SCRAM keys
_WAITED_FOR: Final[dict[int, int]] = {
    pq.PollingStatus.WRITING: select.POLLOUT,
    pq.PollingStatus.READING: select.POLLIN,
}
# Set at the session's start, because a server's default could end the statement that makes the other settings.
_AT_ONCE: Final = "-c statement_timeout=0"
_UNBOUNDED: Final = {"lock_timeout": "0", "idle_in_transaction_session_timeout": "0"}
_UNBOUNDED_SINCE: Final = ((140000, "idle_session_timeout"), (170000, "transaction_timeout"))
_PLAIN: Final = {
    "client_min_messages": "error",
    "exit_on_error": "off",
    "standard_conforming_strings": "on",
    "array_nulls": "on",
    "transform_null_equals": "off",
    "default_transaction_isolation": "read committed",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "synchronous_commit": "local",  # a commit waits only for the server's own disk
}
_CANCEL_S: Final = 1.0
_TCP: Final = {"keepalives": "1", "keepalives_idle": "15", "keepalives_interval": "5", "keepalives_count": "3"}


class ServerError(SourceUnavailable):
    """The server refused a statement. ``sqlstate``: the error code of five characters; empty: none was sent."""

    def __init__(self, message: str, *, sqlstate: str = "", **where: str | None) -> None:
        super().__init__(message, **where)
        self.sqlstate = sqlstate


class SessionEnded(SourceUnavailable):
    """The server ended the session, because it shuts down or an operator ended the session."""


class Connection:
    """A session. Used by one thread at a time. ``close`` is idempotent.

    ``interrupt``: a file descriptor. As soon as it is readable, a call that waits for the server raises
    :class:`~wormhole.model.errors.SourceUnavailable`, and the session is closed. ``encoding``: of the texts sent and
    received.
    """

    def __init__(
        self, pgconn: pq.abc.PGconn, address: Address, interrupt: int = NEVER, encoding: Encoding = UTF8
    ) -> None:
        self.pgconn = pgconn
        self._address = address
        self._interrupt = interrupt
        self.encoding = encoding

    @property
    def version(self) -> int:
        """The server's version, as 150004 for 15.4."""
        return self.pgconn.server_version

    @property
    def encrypted(self) -> bool:
        """Whether the session uses TLS."""
        return self.pgconn.ssl_in_use

    @property
    def is_open(self) -> bool:
        """Whether the session is open. A lost connection is noticed at the next statement."""
        return bool(self.pgconn.status == pq.ConnStatus.OK)

    def query(self, statement: str, *, timeout_s: float = TIMEOUT_S, most_bytes: int = _MOST_ANSWER) -> list[Row]:
        """Run a statement. Returns its rows as text. ``most_bytes``: the most memory that they may take.

        Raises :class:`ServerError` if the server refuses the statement,
        :class:`~wormhole.model.errors.SourceUnavailable` for a broken connection or a larger answer, and
        :class:`~wormhole.model.errors.SourceSilent` at the timeout. After the last two the session is closed.
        """
        _, rows = self._execute(statement, time.monotonic() + timeout_s, most_bytes)
        return rows

    def start_copy(self, statement: str, *, timeout_s: float = TIMEOUT_S) -> None:
        """Send ``START_REPLICATION``. :class:`datastores.postgres.server.stream.Stream` then reads the log.

        Raises as :meth:`query`.
        """
        result, _ = self._execute(statement, time.monotonic() + timeout_s)
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise ServerError(f"{self._address}: the server does not begin to send its log")

    def copy_rows(self, statement: str, *, timeout_s: float) -> Iterator[list[bytes]]:
        """The messages of a ``COPY … TO STDOUT`` as they arrive. A caller that stops before the end must close the
        session. Raises as :meth:`query`, also between messages.
        """
        deadline = time.monotonic() + timeout_s
        try:
            result, _ = self._execute(statement, deadline)
            if result.status != pq.ExecStatus.COPY_OUT:
                raise self._not_understood("it does not send the rows that a COPY was to send")
            size = 0
            while size >= 0:
                messages: list[bytes] = []
                room = _MOST_AT_ONCE
                size, data = self.pgconn.get_copy_data(1)
                while size > 0:
                    messages.append(bytes(data))
                    room -= size + _MESSAGE_COST
                    if room <= 0:
                        break
                    size, data = self.pgconn.get_copy_data(1)
                if messages:
                    yield messages
                elif size == 0:
                    self._receive(deadline)
            self._last(deadline)
        except psycopg.Error:
            raise self._broke() from None

    def close(self) -> None:
        """Close the session. The server drops the session's temporary objects."""
        self.pgconn.finish()

    def cancel(self) -> None:
        """Request the server to cancel the statement that another thread waits for. Returns without effect if the
        server does not soon accept the request.
        """
        deadline = time.monotonic() + _CANCEL_S
        # PGcancel is not used, because psycopg holds the interpreter's lock while it waits, which stops every thread.
        with suppress(psycopg.Error):  # the session ended, no server answers, or libpq is older than 17
            request = self.pgconn.cancel_conn()
            try:
                request.start()
                status: int = pq.PollingStatus.WRITING
                while status in _WAITED_FOR and ready(request.socket, _WAITED_FOR[status], deadline, NEVER):
                    status = request.poll()
            finally:
                request.finish()

    def refusal(self, result: pq.abc.PGresult) -> ServerError:
        """The error for a statement that the server refused."""

        def field(name: pq.DiagnosticField) -> bytes:
            return self.encoding.show((result.error_field(name) or b"")[:_MOST_TEXT]).encode()

        detail = _said(field(pq.DiagnosticField.MESSAGE_DETAIL))
        sqlstate = _said(field(pq.DiagnosticField.SQLSTATE))
        # An error of libpq itself has no fields.
        what = _said(field(pq.DiagnosticField.MESSAGE_PRIMARY)) or _one_line(result.error_message)
        return ServerError(
            f"{self._address}: {what}{f' ({detail})' if detail else ''}",
            sqlstate=sqlstate,
            hint=_HINTS.get(sqlstate) or _said(field(pq.DiagnosticField.MESSAGE_HINT)) or "a retry follows",
        )

    def broken(self) -> SourceUnavailable:
        """The error for a connection that ended."""
        return SourceUnavailable(
            f"{self._address}: {_one_line(self.pgconn.error_message) or 'the connection ended'}",
            hint="check that the server runs; a retry follows",
        )

    def _execute(
        self, statement: str, deadline: float, most_bytes: int = _MOST_ANSWER
    ) -> tuple[pq.abc.PGresult, list[Row]]:
        try:
            self.pgconn.send_query(self.encoding.to_server(statement))
            self.pgconn.set_single_row_mode()  # else libpq collects the whole answer, however large
            while self.pgconn.flush():
                self._wait(select.POLLIN | select.POLLOUT, deadline)
                self.pgconn.consume_input()
            return self._last(deadline, most_bytes)
        except psycopg.Error:
            raise self._broke() from None

    def _last(self, deadline: float, most_bytes: int = _MOST_ANSWER) -> tuple[pq.abc.PGresult, list[Row]]:
        """The last result of the statement, or the result that begins a copy, with its rows."""
        last: pq.abc.PGresult | None = None
        rows: list[Row] = []
        whole = True
        broken = False
        room = most_bytes
        try:
            while (result := self._result(deadline)) is not None:
                # After the server's error libpq adds the error that the connection ended.
                last = result if last is None or last.status != pq.ExecStatus.FATAL_ERROR else last
                if result.status in _COPIES:
                    return result, []
                if whole:
                    rows = []  # drop the rows of the previous statement
                whole = result.status != pq.ExecStatus.SINGLE_TUPLE
                found, cost = _rows_of(result, self.encoding)
                rows += found
                room -= cost
                if room < 0:
                    raise self._not_understood(f"one takes more than {most_bytes >> 20} MiB")
        except psycopg.Error:
            broken = True
        if broken or last is None or (last.status == pq.ExecStatus.FATAL_ERROR and not self.is_open):
            error = self._broke()
            if last is not None and _said(last.error_field(pq.DiagnosticField.SQLSTATE)) in _ENDED:
                error = SessionEnded(error.message, hint=error.hint)
            raise error
        if last.status == pq.ExecStatus.FATAL_ERROR:
            raise self.refusal(last)
        return last, rows

    def _not_understood(self, what: str) -> SourceUnavailable:
        """The error for an answer that no PostgreSQL server gives. Closes the session."""
        self.close()
        return _no_server(self._address, what)

    def _broke(self) -> SourceUnavailable:
        error = self.broken()
        self.close()
        return error

    def _result(self, deadline: float) -> pq.abc.PGresult | None:
        while self.pgconn.is_busy():
            self._receive(deadline)
        return self.pgconn.get_result()

    def _receive(self, deadline: float) -> None:
        self._wait(select.POLLIN, deadline)
        self.pgconn.consume_input()
        drop_notifications(self.pgconn)

    def _wait(self, events: int, deadline: float) -> None:
        try:
            found = ready(self.pgconn.socket, events, deadline, self._interrupt)
        except SourceUnavailable:
            self.close()
            raise
        if not found:
            self.close()
            raise SourceSilent(
                f"{self._address}: the server does not answer in time", hint="check the server's load and its network"
            )


def connect(
    address: Address, *, walsender: bool = False, timeout_s: float = TIMEOUT_S, interrupt: int = NEVER
) -> Connection:
    """Open a session with fixed formats of dates, numbers and bytes. ``interrupt``: see :class:`Connection`.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if the server cannot be reached or accepts no session now,
    and :class:`~wormhole.model.errors.UsageError` for a refused login.
    """
    deadline = time.monotonic() + timeout_s
    places = [address.socket] if address.socket else _resolved(address)
    asked = None
    if address.password and not (address.verifies or address.exposed):
        asked = ask(address, places, walsender=walsender, deadline=deadline, interrupt=interrupt)
        places = [asked.place] if asked else places
    pgconn = pq.PGconn.connect_start(_conninfo(address, places, _proof(address, asked), walsender=walsender))
    try:
        status: int = pq.PollingStatus.WRITING
        while status in _WAITED_FOR and pgconn.status != pq.ConnStatus.BAD:
            if not ready(pgconn.socket, _WAITED_FOR[status], deadline, interrupt):
                raise SourceUnavailable(
                    f"{address.where} does not answer within {timeout_s:g} s",
                    hint="check the address, the network and the server's load; a retry follows",
                )
            status = pgconn.connect_poll()
        if pgconn.status != pq.ConnStatus.OK:
            raise _refused(address, pgconn)
        pgconn.nonblocking = 1
        pgconn.notice_handler = _ignore
        encoding = encoding_of(_said(pgconn.parameter_status(b"server_encoding")))
        connection = Connection(pgconn, address, interrupt, encoding)
        connection.query(_settings(connection, walsender=walsender), timeout_s=max(0.1, deadline - time.monotonic()))
    except BaseException:
        pgconn.finish()
        raise
    return connection


@contextmanager
def understood(address: Address) -> Iterator[None]:
    """Turn parse errors in the block into errors about the peer, which may not be PostgreSQL.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if an answer does not have PostgreSQL's form.
    """
    try:
        yield
    except ValueError as error:
        raise _no_server(address, _one_line(str(error).encode())) from error


def drop_notifications(pgconn: pq.abc.PGconn) -> None:
    """Discard notifications, which libpq otherwise keeps in memory."""
    while pgconn.notifies() is not None:
        pass


def _settings(connection: Connection, *, walsender: bool) -> str:
    """The statement that overrides settings of the server, the database or the account.

    Their settings could end or refuse a session or a statement, or change the format of values.
    """
    settings = {**_UNBOUNDED, "client_encoding": connection.encoding.client, **_PLAIN, **SESSION_SETTINGS}
    if walsender:
        settings["wal_sender_timeout"] = "60s"
    settings |= {name: "0" for since, name in _UNBOUNDED_SINCE if connection.version >= since}
    return ";".join(f"SET {name} = {quote_literal(value)}" for name, value in settings.items())


def _conninfo(address: Address, found: list[str], proof: dict[str, str], *, walsender: bool) -> bytes:
    given = {
        "host": address.socket or ",".join([address.host] * len(found)),
        "hostaddr": "" if address.socket else ",".join(found),
        "port": str(address.port),
        "dbname": address.database,
        "user": address.user,
        "passfile": _NO_FILE,
        "sslmode": address.sslmode,
        "sslrootcert": address.sslrootcert or ("system" if address.sslmode == "verify-full" else ""),
        "sslcert": address.sslcert,
        "sslkey": address.sslkey,
        "client_encoding": "UTF8",
        "application_name": "wormhole",
        "replication": "database" if walsender else "",
        **({} if address.socket else _TCP),
    }
    # Without these two parameters libpq would use its environment variables.
    given = {name: value for name, value in given.items() if value} | {"password": "", "options": _AT_ONCE} | proof
    return b" ".join(f"{name}={_quoted(value)}".encode() for name, value in given.items())


def _resolved(address: Address) -> list[str]:
    """The host's addresses, in the resolver's order.

    libpq would hold the interpreter's lock during the name resolution, and stop every thread while name servers do not
    answer.
    """
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # UnicodeError: the text cannot be a host's name
        raise refused_login(
            address,
            f'could not translate host name "{address.host}" to address: {getattr(error, "strerror", error)}',
            needs_password=False,
            used_password=False,
        ) from None
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


def _proof(address: Address, asked: Asked | None) -> dict[str, str]:
    """The parameters with which libpq may log in. They hold the password itself only if the server is verified or the
    URL has `EXPOSED`."""
    if address.verifies or address.exposed or not address.password:
        return {"password": address.password}
    if asked is None or asked.challenge is None:
        return {}
    if pq.version() < _KEYS_SINCE:
        raise UsageError(
            f"{address}: libpq {pq.version() // 10000} cannot prove the password to an unverified server",
            hint="install psycopg[binary] 3.3 or later, which brings libpq 18; or write "
            "?sslmode=verify-full&sslrootcert=/path/of/ca.pem behind the URL",
            code="login-refused",
        )
    keys = derive(address.password, asked.challenge)
    return {"scram_client_key": keys.client, "scram_server_key": keys.server}


def _refused(address: Address, pgconn: pq.abc.PGconn) -> SourceUnavailable | UsageError:
    if _NOT_GIVEN in pgconn.error_message and address.password:
        return withheld(address, "in another way than a moment before")
    return refused_login(
        address,
        _one_line(pgconn.error_message),
        needs_password=bool(pgconn.needs_password) and not address.password,
        used_password=bool(pgconn.used_password),
    )


def _quoted(value: str) -> str:
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _rows_of(result: pq.abc.PGresult, encoding: Encoding) -> tuple[list[Row], int]:
    """The rows of a result, and the bytes that they take, approximately."""
    rows: list[Row] = []
    cost = _ROW_COST if result.status == pq.ExecStatus.SINGLE_TUPLE else _RESULT_COST
    for at in range(result.ntuples):
        values = [result.get_value(at, column) for column in range(result.nfields)]
        cost += sum(_VALUE_COST + len(value or b"") for value in values)
        rows.append(tuple(None if value is None else encoding.show(value) for value in values))
    return rows, cost


def _no_server(address: Address, what: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"{address}: the answers are not those of a PostgreSQL server ({what})",
        hint="check that the address leads to one, with nothing in between; a retry follows",
        code="peer-not-database",
    )


def _said(value: bytes | None) -> str:
    return (value or b"")[:_MOST_TEXT].decode("utf-8", "replace")


def _one_line(message: bytes) -> str:
    return " ".join(message[:_MOST_TEXT].decode("utf-8", "replace").split())


def _ignore(_: object) -> None:
    """Discard a notice of the server, which is meant for an interactive user."""
