from __future__ import annotations

import pytest

from datastores.mysql.doctor.settings import findings
from datastores.mysql.server.settings import Grant, LogPlace, ReplicaChannel, Settings
from tests.support.mysql_settings import MARIADB, MYSQL, changed
from wormhole.model.findings import Finding, Severity

OK, WARN, PROBLEM = Severity.OK, Severity.WARN, Severity.PROBLEM


def examine(settings: Settings) -> dict[str, Finding]:
    found = list(findings(settings))
    for finding in found:
        assert finding.severity is OK or (finding.because and finding.next_step)
    return {finding.check: finding for finding in found}


def select_only(*more: str) -> tuple[Grant, ...]:
    return (Grant(frozenset({"REPLICATION SLAVE", "SELECT", *more}), "*.*"),)


@pytest.mark.parametrize("settings", [MYSQL, MARIADB])
def test_a_server_as_it_should_be(settings: Settings) -> None:
    found = examine(settings)
    assert [name for name, finding in found.items() if finding.severity is not OK] == ["sql_log_bin"]


@pytest.mark.parametrize(
    ("settings", "check", "name", "value", "sql"),
    [
        (MYSQL, "binlog_row_image", "binlog_row_image", "MINIMAL", "SET PERSIST binlog_row_image = 'FULL';"),
        (MYSQL, "binlog_row_image", "binlog_row_image", "NOBLOB", "SET PERSIST binlog_row_image = 'FULL';"),
        (MYSQL, "binlog_checksum", "binlog_checksum", "NONE", "SET PERSIST binlog_checksum = 'CRC32';"),
        (MYSQL, "sync_binlog", "sync_binlog", "0", "SET PERSIST sync_binlog = 1;"),
        (MYSQL, "sync_binlog", "sync_binlog", "100", "SET PERSIST sync_binlog = 1;"),
        (
            MYSQL,
            "innodb_flush_log_at_trx_commit",
            "innodb_flush_log_at_trx_commit",
            "2",
            "SET PERSIST innodb_flush_log_at_trx_commit = 1;",
        ),
        (MYSQL, "retention", "binlog_expire_logs_seconds", "3600", "SET PERSIST binlog_expire_logs_seconds = 259200;"),
        (MYSQL, "retention", "binlog_space_limit", "1073741824", "SET PERSIST binlog_space_limit = 0;"),
        (MYSQL, "max_allowed_packet", "max_allowed_packet", "1073741824", "SET PERSIST max_allowed_packet = 67108864;"),
        (MYSQL, "time_zone", "system_time_zone", "CET", "read TIMESTAMP values as UTC"),
        (MYSQL, "time_zone", "time_zone", "+02:00", "read TIMESTAMP values as UTC"),
        (MYSQL, "semi_sync", "rpl_semi_sync_source_enabled", "ON", "SET PERSIST rpl_semi_sync_source_enabled = OFF;"),
        (MYSQL, "semi_sync", "rpl_semi_sync_master_enabled", "ON", "SET PERSIST rpl_semi_sync_master_enabled = OFF;"),
        (
            MYSQL,
            "retention",
            "basedir",
            "/rdsdbbin/mysql/",
            "CALL mysql.rds_set_configuration('binlog retention hours', 72);",
        ),
        (MARIADB, "gtid_strict_mode", "gtid_strict_mode", "OFF", "SET GLOBAL gtid_strict_mode = ON;"),
        (MARIADB, "binlog_checksum", "binlog_checksum", "NONE", "SET GLOBAL binlog_checksum = 'CRC32';"),
        (MARIADB, "retention", "max_binlog_total_size", "1073741824", "SET GLOBAL max_binlog_total_size = 0;"),
        (MARIADB, "wsrep_gtid_mode", "wsrep_on", "ON", "wsrep_gtid_mode = ON"),
    ],
)
def test_a_setting_that_should_be_another(settings: Settings, check: str, name: str, value: str, sql: str) -> None:
    finding = examine(changed(settings, variables={name: value}))[check]
    assert finding.severity is WARN
    assert sql in finding.next_step


@pytest.mark.parametrize(
    ("settings", "severity"),
    [
        (changed(MYSQL, version=(8, 0, 36)), OK),
        (changed(MYSQL, version=(9, 6, 0)), OK),
        (changed(MYSQL, version=(8, 3, 0)), WARN),
        (changed(MYSQL, version=(5, 7, 44)), WARN),
        (changed(MYSQL, version=(10, 0, 0)), WARN),
        (changed(MARIADB, version=(10, 6, 1)), OK),
        (changed(MARIADB, version=(11, 8, 2)), OK),
        (changed(MARIADB, version=(10, 5, 1)), WARN),
        (changed(MARIADB, version=(12, 0, 1)), WARN),
    ],
)
def test_versions(settings: Settings, severity: Severity) -> None:
    assert examine(settings)["version"].severity is severity


@pytest.mark.parametrize(
    ("mode", "first"),
    [
        ("OFF", "SET PERSIST enforce_gtid_consistency = WARN;\nSET PERSIST enforce_gtid_consistency = ON;\n"),
        ("OFF_PERMISSIVE", "SET PERSIST enforce_gtid_consistency = WARN;"),
        ("ON_PERMISSIVE", "SET PERSIST enforce_gtid_consistency = WARN;"),
    ],
)  # fmt: skip
def test_the_way_to_gtids_goes_on_from_where_the_server_is(mode: str, first: str) -> None:
    finding = examine(changed(MYSQL, variables={"gtid_mode": mode}))["gtid_mode"]
    assert finding.severity is WARN
    assert finding.next_step.startswith(first)
    assert "SET PERSIST gtid_mode = ON;" in finding.next_step
    assert f"gtid_mode = {mode};" not in finding.next_step


@pytest.mark.parametrize(("settings", "more"), [(MYSQL, False), (MARIADB, True)])
def test_parts_of_rows_lack_more_on_mariadb(settings: Settings, more: bool) -> None:
    told = examine(changed(settings, variables={"binlog_row_image": "MINIMAL"}))["binlog_row_image"]
    assert ("REPLACE" in told.because) is more


def test_documents_changed_in_part() -> None:
    partial = {"binlog_row_value_options": "PARTIAL_JSON"}
    assert examine(changed(MYSQL, variables=partial))["binlog_row_value_options"].severity is OK
    minimal = changed(MYSQL, variables={**partial, "binlog_row_image": "MINIMAL"})
    assert examine(minimal)["binlog_row_value_options"].severity is WARN


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"binlog_expire_logs_seconds": "0"}, "kept until they are deleted by hand"),
        ({"binlog_expire_logs_auto_purge": "OFF"}, "kept until they are deleted by hand"),
        ({"binlog_expire_logs_seconds": "0", "expire_logs_days": "2.000000"}, "kept for 2.0 days"),
        ({}, "kept for 30.0 days (2 files, 3 MiB now)"),
    ],
)
def test_how_long_logs_are_kept(variables: dict[str, str], says: str) -> None:
    finding = examine(changed(MYSQL, variables=variables))["retention"]
    assert finding.severity is OK
    assert says in finding.what


def test_databases_that_are_not_logged() -> None:
    found = examine(changed(MYSQL, place=LogPlace("binlog.000001", 4, "shop", "test,tmp")))
    assert found["binlog_do_db"].severity is found["binlog_ignore_db"].severity is PROBLEM
    assert "only changes made in shop are logged" in found["binlog_do_db"].what
    assert "changes made in test,tmp are not logged" in found["binlog_ignore_db"].what


def test_a_semi_synchronous_primary_with_replicas_is_as_it_should_be() -> None:
    settings = changed(MYSQL, variables={"rpl_semi_sync_source_enabled": "ON"}, semi_sync_clients=2)
    assert examine(settings)["semi_sync"].severity is OK


@pytest.mark.parametrize(
    ("channel", "severity", "says"),
    [
        (ReplicaChannel("", "db0:3306", True, 3), OK, "3 seconds behind"),
        (ReplicaChannel("", "db0:3306", True, 3600), WARN, "tail db0:3306 itself"),
        (ReplicaChannel("", "db0:3306", True, None), WARN, "an unknown number of seconds"),
        (ReplicaChannel("", "db0:3306", False, None), PROBLEM, "START REPLICA;"),
    ],
)
def test_replicas(channel: ReplicaChannel, severity: Severity, says: str) -> None:
    finding = examine(changed(MYSQL, replicas=(channel,)))["replica"]
    assert finding.severity is severity
    assert says in finding.what + finding.next_step


def test_an_account_that_may_not_see_whether_it_is_a_replica() -> None:
    assert "GRANT REPLICA MONITOR ON *.*" in examine(changed(MARIADB, replicas=None))["replica"].next_step


def test_what_an_account_should_and_should_not_have() -> None:
    writer = examine(changed(MYSQL, grants=select_only("UPDATE", "SUPER")))
    assert writer["least_privilege"].what == "wormhole@% has SUPER, UPDATE"
    assert "least_privilege" not in examine(changed(MYSQL, grants=select_only()))
    everybodys = Grant(frozenset({"INSERT", "DROP"}), "test.*", public=True)
    assert "least_privilege" not in examine(changed(MARIADB, grants=(*select_only(), everybodys)))
    blind = examine(changed(MYSQL, grants=(Grant(frozenset({"REPLICATION SLAVE"}), "*.*"),)))
    assert blind["select"].next_step == "GRANT SELECT ON *.* TO 'wormhole'@'%';"
    one = Grant(frozenset({"SELECT"}), "shop.*")
    assert "select" not in examine(changed(MYSQL, grants=(one,)))


def test_nothing_is_granted_to_an_anonymous_account() -> None:
    for settings in (MYSQL, MARIADB):
        found = examine(changed(settings, account="@localhost", login="wormhole@localhost", grants=(), replicas=None))
        assert not [one for one in found.values() if "TO ''@" in one.what + one.next_step]


def test_what_needs_nothing_is_said_all_the_same() -> None:
    variables = {"binlog_encryption": "ON", "binlog_transaction_compression": "ON", "log_bin_compress": "ON"}
    found = examine(changed(MYSQL, variables=variables))
    assert found["encryption"].severity is found["compression"].severity is OK


def test_whose_replication_ids_are_seen() -> None:
    assert "those of other publishers and of replicas" in examine(MYSQL)["replication_ids"].what
    assert "\nGRANT REPLICATION MASTER ADMIN ON *.*" in examine(MARIADB)["replication_ids"].next_step
    seeing = changed(MARIADB, grants=select_only("REPLICATION MASTER ADMIN"))
    assert "those of other publishers and of replicas" in examine(seeing)["replication_ids"].what
