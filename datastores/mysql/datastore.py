"""The datastore port for MySQL and MariaDB: URL, options, checks. Imports nothing that connects to a server.

Both schemes are equivalent: the server's version shows whether it is MySQL or MariaDB.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

from datastores.mysql.files.names import file_name
from datastores.mysql.server.url import EXPOSED, SERVER_KINDS, ServerUrl
from wormhole.host.tls import is_loopback
from wormhole.model.capabilities import Capabilities
from wormhole.model.errors import PositionError
from wormhole.model.findings import Finding, Report
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.table_definition import TableDefinition
from wormhole.ports.datastore import Datastore, Login, SourceOptions, Standing
from wormhole.ports.log_source import LogSource
from wormhole.ports.table_source import TableSource

if TYPE_CHECKING:
    from datastores.mysql.server.address import Address

__all__ = ["DATASTORE"]

# Places that mysqldump and mariadb-dump record: `uuid:1-5,uuid:tag:1-3`, lines allowed, `0-1-17,1-2-5`, and
# `binlog.000012:4711`.
_PLACE: Final = re.compile(
    r"(?ai)\s*(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\s*:\s*[0-9a-z_-]+)+|\d+-\d+-\d+)"
    r"(?:\s*,\s*(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}(?:\s*:\s*[0-9a-z_-]+)+|\d+-\d+-\d+))*\s*"
    r"|[^/\s:]+\.\d+:\d+"
)


class MySqlDatastore(Datastore):
    """See the port."""

    requirement = "wormhole-pubsub[publisher,mysql]"
    capabilities = Capabilities(title="MySQL and MariaDB", databases=True)
    refuses: ClassVar[Mapping[str, str]] = {"pin_folder": "a server keeps its log itself"}
    user_files = "~/.my.cnf"

    def form(self, scheme: str) -> str:
        return f"{scheme}://user@host:3306"

    def check_url(self, url: str, *, configured: bool = False) -> None:
        given = ServerUrl.parse(url)
        if configured and not given.user:
            raise ValueError(f"must name the account: {self.form(given.kind)}")

    def open(self, url: str, options: SourceOptions) -> LogSource:
        from datastores.mysql.source import MySqlSource

        return MySqlSource(url, options)

    def open_tables(self, url: str, options: SourceOptions) -> TableSource:
        from datastores.mysql.existing_rows.source import MySqlTables

        return MySqlTables(url, options)

    def examine(self, url: str, state_dir: Path, login: Login) -> Report:
        from datastores.mysql.doctor import examination as doctor

        return doctor.check(_address(url, login))

    def examine_existing_rows(self, url: str, login: Login, tables: Sequence[str]) -> Sequence[Finding]:
        from datastores.mysql.doctor import examination as doctor

        return doctor.check_existing_rows(_address(url, login), tables)

    def examine_binlog_folder(self, url: str, login: Login, folder: Path) -> Sequence[Finding]:
        from datastores.mysql.doctor import examination as doctor

        return doctor.check_binlog_folder(_address(url, login), folder)

    def standing(self, url: str, login: Login, delivered: Collection[str], *, failover: bool) -> Standing:
        from datastores.mysql import standing

        return standing.standing(_address(url, login), delivered, failover=failover)

    def describe(self, url: str, login: Login, wanted: Callable[[str], bool]) -> Sequence[TableDefinition]:
        from datastores.mysql.server import described_tables

        return described_tables.describe(_address(url, login), wanted)

    def is_place(self, text: str) -> bool:
        return bool(_PLACE.fullmatch(text))

    def native_place(self, place: LogPosition, base: str) -> str:
        """File and offset as in ``SHOW BINLOG EVENTS`` and ``mysqlbinlog``: ``binlog.000003:1892``."""
        return f"{file_name(base, place.file)}:{place.offset}" if base else ""

    def is_behind(self, source: str, number: int, marker: Datamarker) -> bool:
        """See the port. ``source`` is a server's uuid (perhaps with a tag, or with the number of a binlog file), or
        domain-server."""
        from datastores.mysql.decode.gtid import GtidSet, MariaPosition

        if "/" in source:  # the source of a transaction without GTID names its file; the number is its offset
            file = source.rpartition("/")[2]
            return file.isdecimal() and (int(file), number) < (marker.order.file, marker.order.offset)
        try:
            domain = source.partition("-")[0]
            if domain.isdecimal() and source.count("-") == 1:
                return MariaPosition.parse(marker.delivered).covers(int(domain), number)
            return GtidSet.parse(marker.delivered).contains(source, number)
        except PositionError:
            return False

    def split_database(self, url: str) -> tuple[str, str]:
        """See the port. An application's URL names a database, ``mysql://user@host/shop``. A log has all databases."""
        with suppress(ValueError):  # `check_url` reports an invalid URL
            parts = urlsplit(url)
            name = parts.path[1:]
            if parts.scheme in SERVER_KINDS and name and "/" not in name and not parts.fragment:
                return f"{parts.scheme}://{parts.netloc}/{f'?{parts.query}' if parts.query else ''}", unquote(name)
        return url, ""

    def configured_url(self, url: str, login: Login) -> str:
        """The URL with everything needed to reach the server, except the password. The publisher does not read
        ``~/.my.cnf``."""
        address = _address(url, login)
        host = f"[{address.host}]" if ":" in address.host else address.host
        where = host if address.socket else f"{host}:{address.port}"
        options = {"socket": address.socket, "ca": address.ca, "cert": address.cert, "key": address.key}
        options |= {
            "server_public_key": address.server_public_key,
            "unverified_server": EXPOSED if address.exposed else None,
        }
        if address.tls != "prefer":
            options["tls"] = address.tls
        query = "&".join(f"{name}={quote(value, safe='/')}" for name, value in options.items() if value)
        return f"{address.kind}://{quote(address.user, safe='')}@{where}{f'/?{query}' if query else ''}"

    def url_comments(self, url: str) -> Sequence[str]:
        """How to send the password only to the database; empty: the URL ensures that, or need not."""
        parts = urlsplit(url)
        options = parse_qs(parts.query)
        verified = (
            options.get("tls", [""])[0].startswith("verify") or {"ca", "socket", "server_public_key"} & options.keys()
        )
        if verified or not parts.hostname or is_loopback(f"{parts.hostname}:1"):
            return ()
        verifying = json.dumps(f"{parts.scheme}://{parts.netloc}/?tls=verify&ca=/path/of/ca.pem", ensure_ascii=False)
        return (
            (
                "A server on another host gets the password only when its certificate is verified; with its "
                "authority's file:"
            ),
            f"source = {verifying}  (docs/mysql.md: other ways)",
        )


def _address(url: str, login: Login) -> Address:
    from datastores.mysql.server import address

    return address.parse(url, password_file=login.password_file, my_cnf=login.user_files, prompt=login.prompt)


DATASTORE = MySqlDatastore()
