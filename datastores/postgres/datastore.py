"""The datastore port for PostgreSQL: URL, options, checks. Imports nothing that connects to a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote, urlencode, urlsplit

from datastores.postgres.decode.messages import MESSAGES
from datastores.postgres.server.lsn import PLACE, format_lsn, parse_delivered
from datastores.postgres.server.url import DEFAULT_PORT, EXPOSED, ServerUrl
from wormhole.host.tls import is_loopback
from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import PositionError
from wormhole.model.findings import Report
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.table_definition import TableDefinition
from wormhole.ports.datastore import Datastore, Login, ServerObjects, SourceOptions, Standing
from wormhole.ports.log_source import LogSource
from wormhole.ports.table_source import TableSource

if TYPE_CHECKING:
    from datastores.postgres.server.address import Address

__all__ = ["DATASTORE"]


class PostgresDatastore(Datastore):
    """See the port."""

    requirement = "wormhole-pubsub[publisher,postgres]"
    capabilities = Capabilities(
        title="PostgreSQL",
        databases=True,
        table_name="schema.table",
        example_database="public",
        more_tables=(MESSAGES,),
    )
    refuses: ClassVar[Mapping[str, str]] = {
        "pin_folder": "a server keeps its log itself",
        "binlog_folder": "a slot keeps its log",
        "server_ids": "a reader of its log has no number",
        "history_tables": "it has no system-versioned tables",
    }
    user_files = "~/.pgpass"
    holds_log = True

    def form(self, scheme: str) -> str:
        return f"{scheme}://user@host:5432/database"

    def check_url(self, url: str, *, configured: bool = False) -> None:
        given = ServerUrl.parse(url)
        if configured and not given.user:
            raise ValueError(f"must name the account: {self.form(given.kind)}")

    def open(self, url: str, options: SourceOptions) -> LogSource:
        from datastores.postgres.source import PostgresSource

        return PostgresSource(url, options)

    def examine(self, url: str, state_dir: Path, login: Login) -> Report:
        from datastores.postgres.doctor import examination as doctor
        from datastores.postgres.server.connection import understood

        address = _address(url, login)
        with understood(address):
            return doctor.check(address)

    def standing(self, url: str, login: Login, delivered: Collection[str], *, failover: bool) -> Standing:
        from datastores.postgres import standing

        return standing.standing(_address(url, login), delivered)

    def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> Sequence[TableDefinition]:
        from datastores.postgres.tables import described as described_tables

        return described_tables.describe(_address(url, login), wanted)

    def url_of_log(self, url: str, log: str, configured: str = "") -> str:
        """The URL with ``publication`` and ``slot``."""
        from datastores.postgres.server.address import slot_name

        given, known, name = ServerUrl.parse(url), ServerUrl.parse(configured or url), slot_name(log)
        more = {} if given.publication else {"publication": known.publication or name}
        more |= {} if given.slot else {"slot": known.slot or name}
        added = urlencode(more)
        return f"{url}{'&' if '?' in url else '?'}{added}" if added else url

    def reserved(self, url: str, log: str) -> str:
        """The slots of the log. All databases of a server share the names of slots."""
        from datastores.postgres.server.address import slot_name

        given = ServerUrl.parse(url)
        here = not given.host or is_loopback(given.host)
        where = given.socket or f"{'localhost' if here else given.host}:{given.port or DEFAULT_PORT}"
        return f"the replication slots {given.slot or slot_name(log)}_* of {where}"

    def server_objects(self, url: str, login: Login, tables: Sequence[str] = ()) -> ServerObjects:
        from datastores.postgres.doctor import server_objects
        from datastores.postgres.server.connection import understood

        address = _address(url, login)
        with understood(address):
            return server_objects.find(address, tables)

    def run_statements(self, url: str, login: Login, statements: Sequence[str]) -> None:
        from datastores.postgres.doctor import server_objects

        server_objects.run(_address(url, login), statements)

    def name_in(self, url: str) -> str:
        """The database's name, because a log belongs to one database."""
        return ServerUrl.parse(url).database

    def open_tables(self, url: str, options: SourceOptions) -> TableSource:
        from datastores.postgres.existing_rows.source import PostgresTables

        return PostgresTables(url, options)

    def is_place(self, text: str) -> bool:
        return bool(PLACE.fullmatch(text))

    def native_place(self, place: LogPosition, base: str) -> str:
        """The LSN as PostgreSQL's tools show it: ``0/16B3748``."""
        return format_lsn(place.offset) if base else ""

    def is_behind(self, source: str, number: int, marker: Datamarker) -> bool:
        """See the port. ``source`` is a server's system identifier and a timeline. ``number`` is the commit's LSN,
        which precedes the transaction's end."""
        try:
            timeline, lsn = parse_delivered(marker.delivered)
        except PositionError:
            return False
        of = source.rpartition(":")[2]
        return of.isdecimal() and (int(of), number) < (timeline, lsn)

    def configured_url(self, url: str, login: Login) -> str:
        """The URL with everything needed to reach the database, except the password."""
        address = _address(url, login)
        host = f"[{address.host}]" if ":" in address.host else address.host
        given = ServerUrl.parse(url)
        options = {
            "host": given.socket,
            "sslmode": given.sslmode,
            "sslrootcert": given.sslrootcert,
            "sslcert": given.sslcert,
            "sslkey": given.sslkey,
            "unverified_server": EXPOSED if given.exposed else None,
            "publication": given.publication,
            "slot": given.slot,
        }
        query = "&".join(f"{name}={quote(value, safe='/')}" for name, value in options.items() if value)
        where = f"{host}:{address.port}"
        if address.socket:  # the name of the socket ends with the port
            where = f":{address.port}" if given.port else ""
        path = quote(address.database, safe="")
        return f"{address.kind}://{quote(address.user, safe='')}@{where}/{path}{f'?{query}' if query else ''}"

    def url_comments(self, url: str) -> Sequence[str]:
        """How to make the connection private; empty: it is private, or need not be."""
        parts = urlsplit(url)
        if "sslmode=verify" in parts.query or not parts.hostname or is_loopback(f"{parts.hostname}:1"):
            return ()
        verifying = json.dumps(
            f"{parts.scheme}://{parts.netloc}{parts.path}?sslmode=verify-full&sslrootcert=/path/of/ca.pem",
            ensure_ascii=False,
        )
        return (
            "A server on another host is only known to be the right one when its certificate is verified:",
            f"source = {verifying}",
        )


def _address(url: str, login: Login) -> Address:
    from datastores.postgres.server import address

    # A command without a log uses the log's name that `init` would choose.
    log = ServerUrl.parse(url).database
    return address.parse(url, log, password_file=login.password_file, pgpass=login.user_files, prompt=login.prompt)


DATASTORE = PostgresDatastore()
