"""The datastore port for PostgreSQL with triggers: URL, options, checks. Imports nothing that connects to a server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from datastores.postgres.capture.url import SCHEME, CaptureUrl
from datastores.postgres.datastore import DATASTORE as SERVER
from datastores.postgres.server.url import DEFAULT_PORT
from wormhole.host.tls import is_loopback
from wormhole.model.capabilities import Capabilities
from wormhole.model.findings import Report
from wormhole.model.table_definition import TableDefinition
from wormhole.ports.datastore import Datastore, Login, ServerObjects, SourceOptions
from wormhole.ports.log_source import LogSource
from wormhole.ports.table_source import TableSource

if TYPE_CHECKING:
    from datastores.postgres.server.address import Address

__all__ = ["DATASTORE"]

_WITHOUT: Final = {
    "pin_folder": "a server keeps its tables itself",
    "binlog_folder": "changes are in a table",
    "server_ids": "a reader of a table has no number",
    "history_tables": "it has no system-versioned tables",
}


class CaptureDatastore(Datastore):
    """See the port."""

    requirement = SERVER.requirement
    capabilities = Capabilities(
        title="PostgreSQL with triggers", databases=True, table_name="schema.table", example_database="public"
    )
    refuses: ClassVar[Mapping[str, str]] = _WITHOUT
    user_files = SERVER.user_files
    holds_log = True
    captures = True

    def form(self, scheme: str) -> str:
        return f"{scheme}://user@host:5432/database"

    def check_url(self, url: str, *, configured: bool = False) -> None:
        given = CaptureUrl.parse(url)
        if configured and not given.parts.user:
            raise ValueError(f"must name the account: {self.form(SCHEME)}")

    def open(self, url: str, options: SourceOptions) -> LogSource:
        from datastores.postgres.capture.source import CaptureSource

        return CaptureSource(url, options)

    def examine(self, url: str, state_dir: Path, login: Login) -> Report:
        from datastores.postgres.capture import doctor
        from datastores.postgres.server.connection import understood

        address = _address(url, login)
        with understood(address):
            return doctor.check(address, CaptureUrl.parse(url).schema)

    def open_tables(self, url: str, options: SourceOptions) -> TableSource:
        from datastores.postgres.capture.existing_rows import CaptureTables

        return CaptureTables(url, options)

    def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> Sequence[TableDefinition]:
        from datastores.postgres.tables import described as described_tables

        return described_tables.describe(_address(url, login), wanted)

    def reserved(self, url: str, log: str) -> str:
        """The schema of the objects, because changes that one log has received are removed for every log."""
        given = CaptureUrl.parse(url)
        return f"the schema {given.schema} of {SERVER.name_in(given.server)} at {_where(given)}"

    def server_objects(self, url: str, login: Login, tables: Sequence[str] = ()) -> ServerObjects:
        from datastores.postgres.capture import objects
        from datastores.postgres.server.connection import understood

        address = _address(url, login)
        with understood(address):
            return objects.find(address, CaptureUrl.parse(url).schema, tables)

    def run_statements(self, url: str, login: Login, statements: Sequence[str]) -> None:
        from datastores.postgres.capture import objects

        objects.run(_address(url, login), statements)

    def name_in(self, url: str) -> str:
        return SERVER.name_in(CaptureUrl.parse(url).server)

    def configured_url(self, url: str, login: Login) -> str:
        """The URL with everything needed to reach the database, except the password."""
        given = CaptureUrl.parse(url)
        server = SERVER.configured_url(given.server, login)
        return given.with_server(server)

    def url_comments(self, url: str) -> Sequence[str]:
        """How to make the connection private; empty: it is private, or need not be."""
        given = CaptureUrl.parse(url)
        return [line.replace(given.server, url) for line in SERVER.url_comments(given.server)]


def _where(given: CaptureUrl) -> str:
    here = not given.parts.host or is_loopback(given.parts.host)
    return given.parts.socket or f"{'localhost' if here else given.parts.host}:{given.parts.port or DEFAULT_PORT}"


def _address(url: str, login: Login) -> Address:
    from datastores.postgres.server import address

    given = CaptureUrl.parse(url)
    return address.parse(
        given.server,
        given.parts.database,
        password_file=login.password_file,
        pgpass=login.user_files,
        prompt=login.prompt,
    )


DATASTORE = CaptureDatastore()
