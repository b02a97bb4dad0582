"""``wormholectl doctor`` for a MySQL or MariaDB server. It only reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Final

from datastores.mysql.doctor import settings as mysql_settings
from datastores.mysql.doctor import tables as mysql_tables
from datastores.mysql.doctor.existing_rows import findings as existing_rows_findings
from datastores.mysql.doctor.folder import finding as folder_finding
from datastores.mysql.doctor.growth import measure_growth
from datastores.mysql.server.address import Address
from datastores.mysql.server.connection import connect, login_of, reading_answers
from datastores.mysql.server.login import next_step
from datastores.mysql.server.required_settings import required
from datastores.mysql.server.settings import Settings, read_settings
from datastores.mysql.server.state import queries_of
from datastores.mysql.server.table_names import show_all
from wormhole.host.tls import is_loopback
from wormhole.model.findings import Finding, Report, SeenTable, Severity

__all__ = ["check", "check_binlog_folder", "check_existing_rows"]

_TIMEOUT_S: Final = 60.0  # seconds; information_schema is slow with many tables


def check(address: Address, *, timeout_s: float = _TIMEOUT_S) -> Report:
    """Examine the server for a publisher that uses this account.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` if it cannot be reached, and
    :class:`~wormhole.model.errors.UsageError` for a wrong account or certificate.
    """
    report = Report(address.url)
    with closing(connect(address, timeout_s=timeout_s)) as connection:
        settings = read_settings(connection)
        with reading_answers("the server's tables"):
            show_all(connection)
            tables = mysql_tables.read_tables(connection)
        risk = login_of(connection).risk()
    report.growth = measure_growth(address, settings, timeout_s=timeout_s)
    report.facts.update(_facts(settings, address))
    report.tables += [SeenTable(one.database, one.table, one.key_columns, one.rows) for one in tables]
    report.findings += required(settings)
    report.findings += mysql_settings.findings(settings)
    report.findings += mysql_tables.findings(settings, tables)
    report.findings += existing_rows_findings(settings, ())
    report.findings += _password(address, risk)
    report.findings += _way(settings, address)
    return report


def check_existing_rows(address: Address, tables: Sequence[str]) -> list[Finding]:
    """Findings on whether this account may read the existing rows of ``tables``, which may be patterns. Raises as
    :func:`check`."""
    with closing(connect(address, timeout_s=_TIMEOUT_S)) as connection:
        return list(existing_rows_findings(read_settings(connection), tables))


def check_binlog_folder(address: Address, folder: Path) -> list[Finding]:
    """Findings on a folder of binlog files. Raises as :func:`check`."""
    with closing(connect(address, timeout_s=_TIMEOUT_S)) as connection:
        return [folder_finding(connection, queries_of(read_settings(connection)), folder)]


def _facts(settings: Settings, address: Address) -> dict[str, str]:
    facts = {"server": f"{'MariaDB' if settings.mariadb else 'MySQL'} {settings.version_text}"}
    if settings.server_uuid:
        facts["server uuid"] = settings.server_uuid
    facts["account"] = settings.account
    facts["connection"] = f"{'socket' if address.socket else 'TCP'}, {settings.tls or 'without TLS'}"
    if settings.place:
        facts["log ends at"] = f"{settings.place.file}:{settings.place.offset}"
    executed = settings.gtid_executed or settings.gtid_binlog_pos
    if executed:
        facts["GTID"] = executed
    return facts


def _password(address: Address, risk: tuple[str, str] | None) -> Iterator[Finding]:
    """Findings on how the account's password may leak. ``risk``: the result of
    :meth:`datastores.mysql.server.login.Login.risk`.
    """
    for remark in address.remarks:
        yield Finding(
            "password", Severity.WARN, remark, "a user who reads it may read the whole log", "see docs/mysql.md"
        )
    if risk is not None:
        yield Finding("password", Severity.WARN, *risk, next_step(address))


def _way(settings: Settings, address: Address) -> Iterator[Finding]:
    if address.socket or is_loopback(address.host):
        yield Finding("tls", Severity.OK, "the connection stays on this host")
    elif not settings.tls:
        yield Finding(
            "tls",
            Severity.WARN,
            "the connection is not encrypted",
            "every row crosses the network as plain text",
            "let the server offer TLS (ssl_ca, ssl_cert, ssl_key), and write "
            "?tls=verify&ca=/path/of/the/authority.pem behind the URL",
        )
    elif address.tls in ("verify", "verify-ca"):
        yield Finding(
            "tls", Severity.OK, f"the connection is encrypted, and the certificate is checked (tls={address.tls})"
        )
    else:
        yield Finding(
            "tls",
            Severity.WARN,
            f"the connection is encrypted, and the server's certificate is not checked (tls={address.tls})",
            "a machine in between could pass for the server",
            "write ?tls=verify&ca=/path/of/the/authority.pem behind the URL",
        )
