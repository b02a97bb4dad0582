"""The doctor's findings about a server's settings, beyond :mod:`datastores.mysql.server.required_settings`. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from datastores.mysql.server.required_settings import grant_to, is_rds, to_set
from datastores.mysql.server.settings import Settings
from wormhole.model.findings import Finding, Severity

__all__ = ["findings"]

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM

_DAY_S: Final = 86_400
_LAG_S: Final = 60
_MAX_UPDATE: Final = 64 << 20  # the default of publisher.max_update_bytes
_MYSQL: Final = ((8, 0), (8, 4))
_MARIADB: Final = ((10, 6), (10, 11))
# Privileges to change data or the server, which a publisher does not need.
_WRITING: Final = frozenset(
    {"ALL PRIVILEGES", "ALL", "INSERT", "UPDATE", "DELETE", "DROP", "ALTER", "CREATE", "SUPER", "FILE", "SHUTDOWN"}
)


def findings(settings: Settings) -> Iterator[Finding]:
    """The findings on all settings that matter."""
    for check in _CHECKS:
        yield from check(settings)


def _version(settings: Settings) -> Iterator[Finding]:
    short = settings.version[:2]
    known = short in _MARIADB or short[0] == 11 if settings.mariadb else short in _MYSQL or short[0] == 9
    if known:
        yield Finding("version", OK, f"{settings.version_text} is supported")
        return
    supported = "MariaDB 10.6, 10.11 and 11" if settings.mariadb else "MySQL 8.0, 8.4 and 9"
    yield Finding(
        "version",
        WARN,
        f"{settings.version_text} is not among the supported versions",
        "it may log what this release does not know; what cannot be decoded is held with an error, never passed over",
        f"use one of {supported}",
    )


def _row_image(settings: Settings) -> Iterator[Finding]:
    image = settings.variable("binlog_row_image", default="FULL").upper()
    if image in ("FULL", "FULL_NODUP"):
        yield Finding("binlog_row_image", OK, f"binlog_row_image={image}: updates carry whole rows")
    else:
        yield Finding(
            "binlog_row_image",
            WARN,
            f"binlog_row_image={image}: columns that a statement did not touch are left out of the log",
            "they reach subscribers as unavailable, and filters on them cannot be decided"
            + (
                "; a REPLACE resets the columns that it does not name, and MariaDB logs nothing of that"
                if settings.mariadb
                else ""
            ),
            to_set(settings, "binlog_row_image", "'FULL'"),
        )
    if "PARTIAL_JSON" not in settings.variable("binlog_row_value_options").upper():
        return
    if image == "FULL":
        yield Finding("binlog_row_value_options", OK, "PARTIAL_JSON: changed documents are put together again")
    else:
        yield Finding(
            "binlog_row_value_options",
            WARN,
            f"PARTIAL_JSON with binlog_row_image={image}: the log may hold a change without the document it changes",
            "such a document reaches subscribers as unavailable",
            to_set(settings, "binlog_row_value_options", "''"),
        )


def _checksum(settings: Settings) -> Iterator[Finding]:
    if settings.variable("binlog_checksum").upper() == "CRC32":
        yield Finding("binlog_checksum", OK, "binlog_checksum=CRC32: damage is noticed")
        return
    yield Finding(
        "binlog_checksum",
        WARN,
        "binlog_checksum=NONE: the log's events have no checksums",
        "damage on the disk or on the way may be delivered as data",
        to_set(settings, "binlog_checksum", "'CRC32'"),
    )


def _gtid(settings: Settings) -> Iterator[Finding]:
    if settings.mariadb:
        if settings.flag("gtid_strict_mode"):
            yield Finding("gtid_strict_mode", OK, "gtid_strict_mode=ON: sequence numbers only grow")
        else:
            yield Finding(
                "gtid_strict_mode",
                WARN,
                "gtid_strict_mode=OFF: a replica may write transactions of its own between those of its source",
                "after a failover to it, what was delivered and what it has can no longer be compared with certainty",
                to_set(settings, "gtid_strict_mode", "ON"),
            )
        return
    mode = settings.variable("gtid_mode", default="OFF").upper()
    if mode == "ON":
        yield Finding("gtid_mode", OK, "gtid_mode=ON: places outlive a failover")
        return
    steps = (
        ("enforce_gtid_consistency", "WARN"),
        ("enforce_gtid_consistency", "ON"),
        ("gtid_mode", "OFF_PERMISSIVE"),
        ("gtid_mode", "ON_PERMISSIVE"),
        ("gtid_mode", "ON"),
    )
    order = [value for name, value in steps if name == "gtid_mode"]
    left = steps if mode == "OFF" else [step for step in steps if step[1] not in order[: order.index(mode) + 1]]
    yield Finding(
        "gtid_mode",
        WARN,
        f"gtid_mode={mode}: a place in the log is a file and an offset of this very server",
        "after a failover or a restore no flow can go on by itself: each is reported as diverged",
        "\n".join(to_set(settings, name, value) for name, value in left)
        + "\n(one after the other, the last when the status variable Ongoing_anonymous_transaction_count is 0 on "
        "every server)",
    )


def _retention(settings: Settings) -> Iterator[Finding]:
    if not settings.flag("log_bin"):
        return  # without a log nothing is kept
    size = sum(log.size for log in settings.logs)
    now = f"{len(settings.logs)} files, {size / (1 << 20):.0f} MiB now"
    if is_rds(settings):
        yield Finding(
            "retention",
            WARN,
            "Amazon deletes binary logs by a rule of its own (binlog retention hours), as soon as possible "
            "unless configured otherwise",
            "what a publisher had not read by then is lost for subscribers, and reported as such",
            "CALL mysql.rds_set_configuration('binlog retention hours', 72);",
        )
        return
    seconds = settings.number("binlog_expire_logs_seconds") or settings.number("expire_logs_days") * _DAY_S
    kept_by_hand = settings.variable("binlog_expire_logs_auto_purge", default="ON").upper() == "OFF"
    limit = settings.number("max_binlog_total_size") or settings.number("binlog_space_limit")
    if limit:
        yield Finding(
            "retention",
            WARN,
            f"old logs go when all together exceed {limit / (1 << 20):.0f} MiB ({now})",
            "a burst of writes shortens the time that a publisher may be away; what it had not read is lost "
            "for subscribers, and reported as such",
            "let the limit hold the writes of the longest time that a publisher may be down, or\n"
            + to_set(settings, "max_binlog_total_size" if settings.mariadb else "binlog_space_limit", "0"),
        )
    elif not seconds or kept_by_hand:
        yield Finding("retention", OK, f"old logs are kept until they are deleted by hand ({now}): watch the disk")
    elif seconds < _DAY_S:
        yield Finding(
            "retention",
            WARN,
            f"logs are kept for {seconds / 3600:.1f} hours ({now})",
            "what is written while no publisher runs for longer is lost for subscribers, and reported as such",
            to_set(settings, "binlog_expire_logs_seconds", str(3 * _DAY_S)),
        )
    else:
        yield Finding("retention", OK, f"logs are kept for {seconds / _DAY_S:.1f} days ({now})")


def _durability(settings: Settings) -> Iterator[Finding]:
    for name, lost in (
        ("sync_binlog", "the log may lose transactions that were delivered"),
        ("innodb_flush_log_at_trx_commit", "the tables may lose transactions that the log has and that were delivered"),
    ):
        value = settings.variable(name, default="1")
        if value == "1":
            yield Finding(name, OK, f"{name}=1: what was committed outlives a power cut")
        else:
            yield Finding(
                name,
                WARN,
                f"{name}={value}: a commit does not wait for the disk",
                f"after a power cut {lost}: subscribers then have what the database has not, and flows are "
                "reported as diverged",
                to_set(settings, name, "1"),
            )


def _semi_sync(settings: Settings) -> Iterator[Finding]:
    if not settings.flag("rpl_semi_sync_source_enabled", "rpl_semi_sync_master_enabled"):
        yield Finding("semi_sync", OK, "semi-synchronous replication is off; a publisher takes no part in it")
    elif settings.semi_sync_clients:
        yield Finding(
            "semi_sync",
            OK,
            f"semi-synchronous with {settings.semi_sync_clients} replicas; a publisher never acknowledges and "
            "does not count as one",
        )
    else:
        prefix = (
            "rpl_semi_sync_source" if "rpl_semi_sync_source_enabled" in settings.variables else "rpl_semi_sync_master"
        )
        yield Finding(
            "semi_sync",
            WARN,
            "semi-synchronous replication is on, and no replica acknowledges",
            f"commits wait for {prefix}_timeout and then go on without; a publisher never acknowledges and "
            "does not count as a replica",
            f"attach a semi-synchronous replica, or\n{to_set(settings, prefix + '_enabled', 'OFF')}",
        )


def _filters(settings: Settings) -> Iterator[Finding]:
    place = settings.place
    for name, databases, what in (
        ("binlog_do_db", place.do_db if place else "", "only changes made in {} are logged"),
        ("binlog_ignore_db", place.ignore_db if place else "", "changes made in {} are not logged"),
    ):
        if databases:
            yield Finding(
                name,
                PROBLEM,
                f"{name}: {what.format(databases)}",
                "the others never enter the log: no subscriber gets them, and nothing reports it",
                f"remove {name} from my.cnf and restart the server; choose tables in the application's "
                "settings instead",
            )


def _not_logged(settings: Settings) -> Iterator[Finding]:
    who = "BINLOG ADMIN" if settings.mariadb else "SYSTEM_VARIABLES_ADMIN, SESSION_VARIABLES_ADMIN or SUPER"
    yield Finding(
        "sql_log_bin",
        WARN,
        "sessions with SET sql_log_bin = 0 cannot be seen from outside",
        "what they change never enters the log: no subscriber gets it, and nothing reports it",
        f"make sure that no account with {who} uses it for data that subscribers need; docs/mysql.md lists what else "
        "changes rows without a row in the log",
    )


def _content(settings: Settings) -> Iterator[Finding]:
    if settings.flag("binlog_encryption", "encrypt_binlog"):
        yield Finding("encryption", OK, "the log is encrypted on the server's disk; it is sent decrypted, so use TLS")
    if settings.flag("binlog_transaction_compression"):
        yield Finding("compression", OK, "binlog_transaction_compression=ON: payloads are decompressed")
    if settings.flag("log_bin_compress"):
        yield Finding("compression", OK, "log_bin_compress=ON: events are decompressed")
    packet = settings.number("max_allowed_packet")
    text = f"max_allowed_packet={packet / (1 << 20):.0f} MiB: a value may be as large as that"
    if packet <= _MAX_UPDATE:
        yield Finding("max_allowed_packet", OK, text)
    else:
        yield Finding(
            "max_allowed_packet",
            WARN,
            text,
            f"an update larger than publisher.max_update_bytes ({_MAX_UPDATE >> 20} MiB unless set) comes "
            "without its values, marked too_large",
            "raise publisher.max_update_bytes and memory_budget if rows are that large, or\n"
            f"{to_set(settings, 'max_allowed_packet', str(_MAX_UPDATE))}",
        )


def _time_zone(settings: Settings) -> Iterator[Finding]:
    zone = settings.variable("time_zone", default="SYSTEM")
    if zone.upper() == "SYSTEM":
        zone = settings.variable("system_time_zone", default="UTC")
    if zone.upper() in ("UTC", "GMT", "+00:00", "-00:00", "ETC/UTC", "ZULU"):
        yield Finding("time_zone", OK, f"time_zone is {zone}: TIMESTAMP columns arrive as SELECT shows them")
        return
    yield Finding(
        "time_zone",
        WARN,
        f"time_zone is {zone}",
        "TIMESTAMP columns arrive in UTC, not in that zone as SELECT shows them; DATETIME columns arrive as they are",
        "read TIMESTAMP values as UTC in the subscriber",
    )


def _replication(settings: Settings) -> Iterator[Finding]:
    if settings.replicas is None and settings.anonymous:
        return  # another finding covers the anonymous account
    if settings.replicas is None:
        yield Finding(
            "replica",
            WARN,
            f"{settings.account} may not see whether this server is a replica",
            "how far it is behind its source was not examined",
            grant_to(settings, "REPLICA MONITOR" if settings.mariadb else "REPLICATION CLIENT"),
        )
        return
    for channel in settings.replicas:
        start = "START SLAVE;" if settings.mariadb or settings.version < (8, 0, 22) else "START REPLICA;"
        if not channel.running:
            yield Finding(
                "replica",
                PROBLEM,
                f"replication from {channel.source} does not run",
                "what is committed there does not reach this log",
                f"look at SHOW {'ALL SLAVES' if settings.mariadb else 'REPLICA'} STATUS, repair what it names, "
                f"then\n{start}",
            )
        elif channel.lag_s is None or channel.lag_s > _LAG_S:
            yield Finding(
                "replica",
                WARN,
                f"this replica of {channel.source} is "
                f"{channel.lag_s if channel.lag_s is not None else 'an unknown number of'} seconds behind",
                "subscribers are at least as far behind",
                f"tail {channel.source} itself, or give the replica more parallel workers",
            )
        else:
            yield Finding("replica", OK, f"a replica of {channel.source}, {channel.lag_s} seconds behind")
    if settings.flag("wsrep_on") and not settings.flag("wsrep_gtid_mode"):
        yield Finding(
            "wsrep_gtid_mode",
            WARN,
            "a Galera node with wsrep_gtid_mode=OFF: each node numbers transactions in its own way",
            "a flow cannot go on at another node: it is reported as diverged",
            "in my.cnf of every node under [mysqld]: wsrep_gtid_mode = ON, and a wsrep_gtid_domain_id; then "
            "restart them one by one",
        )


def _replication_ids(settings: Settings) -> Iterator[Finding]:
    if settings.anonymous:
        return
    held = {privilege for grant in settings.grants for privilege in grant.privileges if grant.scope == "*.*"}
    if settings.mariadb and not held & {"REPLICATION MASTER ADMIN", "ALL PRIVILEGES", "ALL"}:
        # No warning, because the privilege also permits changes, and only manually chosen ids collide with a replica's.
        what = f"other publishers' are seen; those of replicas are not, as {settings.account} may not list them"
        step = f"to see them as well:\n{grant_to(settings, 'REPLICATION MASTER ADMIN')}"
        yield Finding("replication_ids", OK, what, next_step=step)
    else:
        yield Finding("replication_ids", OK, "those of other publishers and of replicas are seen, and not used")


def _privileges(settings: Settings) -> Iterator[Finding]:
    if settings.anonymous:
        return
    own = {privilege for grant in settings.grants if not grant.public for privilege in grant.privileges}
    writing = own & _WRITING
    if writing:
        yield Finding(
            "least_privilege",
            WARN,
            f"{settings.account} has {', '.join(sorted(writing))}",
            "a publisher never writes: a user who gets its password could",
            "let it use an account of its own, with no more than docs/mysql.md grants",
        )
    if not any(grant.privileges & {"SELECT", "ALL PRIVILEGES", "ALL"} for grant in settings.grants):
        yield Finding(
            "select",
            WARN,
            f"{settings.account} has SELECT on nothing",
            'existing rows are refused (start = "existing", `wormholectl backfill`), and no table can be examined: '
            "keys, cascades and character sets",
            grant_to(settings, "SELECT"),
        )


_CHECKS: Final[tuple[Callable[[Settings], Iterator[Finding]], ...]] = (
    _version,
    _row_image,
    _checksum,
    _gtid,
    _retention,
    _durability,
    _semi_sync,
    _filters,
    _not_logged,
    _content,
    _time_zone,
    _replication,
    _replication_ids,
    _privileges,
)
