from __future__ import annotations

import pytest

from datastores.mysql.server.required_settings import fatal, grant_to, refuse, required, to_set
from datastores.mysql.server.settings import Grant, ReplicaChannel, Settings
from tests.support.mysql_settings import MARIADB, MYSQL, changed
from wormhole.model.errors import UnsupportedLog, UsageError
from wormhole.model.findings import Severity

CHANNEL = ReplicaChannel("", "db1:3306", True, 0)


@pytest.mark.parametrize("settings", [MYSQL, MARIADB])
def test_a_server_as_it_should_be_is_not_refused(settings: Settings) -> None:
    assert fatal(settings) == []
    refuse(settings, "db1")
    assert {finding.severity for finding in required(settings)} == {Severity.OK}


@pytest.mark.parametrize(
    ("settings", "check", "says"),
    [
        (changed(MYSQL, variables={"log_bin": "OFF"}), "log_bin", "log_bin = binlog"),
        (changed(MYSQL, variables={"binlog_format": "MIXED"}), "binlog_format", "SET PERSIST binlog_format = 'ROW';"),
        (
            changed(MARIADB, variables={"binlog_format": "STATEMENT"}),
            "binlog_format",
            (
                "SET GLOBAL binlog_format = 'ROW';\nFLUSH BINARY LOGS;\n"
                "and in my.cnf under [mysqld]: binlog_format = ROW\n(sessions"
            ),
        ),
        (
            changed(MYSQL, variables={"binlog_row_metadata": "MINIMAL"}),
            "binlog_row_metadata",
            "SET PERSIST binlog_row_metadata = 'FULL';\nFLUSH BINARY LOGS;",
        ),
        (
            changed(MARIADB, variables={"binlog_row_metadata": "NO_LOG"}),
            "binlog_row_metadata",
            "'FULL';\nFLUSH BINARY LOGS;\nand in my.cnf under [mysqld]: binlog_row_metadata = FULL",
        ),
        (changed(MYSQL, "binlog_row_metadata", version_text="5.7.44"), "binlog_row_metadata", "upgrade the server"),
        (changed(MYSQL, server_id=0), "server_id", "SET PERSIST server_id = 1;"),
        (
            changed(MYSQL, variables={"log_replica_updates": "OFF"}, replicas=(CHANNEL,)),
            "log_replica_updates",
            "log_replica_updates = ON",
        ),
        (
            changed(MARIADB, variables={"log_slave_updates": "OFF"}, replicas=(CHANNEL,)),
            "log_slave_updates",
            "log_slave_updates = ON",
        ),
        (
            changed(MARIADB, variables={"log_slave_updates": "OFF", "wsrep_on": "ON"}),
            "log_slave_updates",
            "log_slave_updates = ON",
        ),
        (
            changed(MYSQL, grants=(Grant(frozenset({"SELECT"}), "*.*"),)),
            "grants",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'wormhole'@'%';",
        ),
        (
            changed(MARIADB, grants=(Grant(frozenset({"REPLICATION SLAVE"}), "*.*"),)),
            "grants",
            "GRANT BINLOG MONITOR ON *.* TO 'wormhole'@'%';",
        ),
        (
            changed(MYSQL, grants=(Grant(frozenset({"ALL PRIVILEGES"}), "shop.*"),)),
            "grants",
            "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.*",
        ),
        (
            changed(MYSQL, account="@localhost", login="reader@localhost", grants=()),
            "account",
            (
                "DROP USER ''@'localhost';\nor, if it is needed, with the grants of docs/mysql.md:\n"
                "CREATE USER 'reader'@'localhost'"
            ),
        ),
    ],
)
def test_what_is_refused_and_what_to_run(settings: Settings, check: str, says: str) -> None:
    [finding] = fatal(settings)
    assert (finding.check, finding.severity) == (check, Severity.PROBLEM)
    assert says in finding.next_step
    with pytest.raises(UsageError if check in ("account", "grants") else UnsupportedLog) as caught:
        refuse(settings, "u@db1:3306")
    assert finding.what in caught.value.message
    assert finding.because in caught.value.message
    assert caught.value.hint == finding.next_step  # each statement to paste on a line of its own
    assert "\n" not in str(caught.value), "an error is one line of a log"
    assert caught.value.message.startswith("u@db1:3306: ")


def test_everything_that_is_wrong_is_reported_at_once() -> None:
    settings = changed(MYSQL, variables={"binlog_format": "MIXED", "binlog_row_metadata": "MINIMAL"}, grants=())
    with pytest.raises(UnsupportedLog) as caught:
        refuse(settings, "db1")
    for part in ("binlog_format=MIXED", "binlog_row_metadata=MINIMAL", "lacks REPLICATION SLAVE"):
        assert part in caught.value.message
    for sql in ("binlog_format = 'ROW';", "binlog_row_metadata = 'FULL';", "GRANT REPLICATION SLAVE"):
        assert sql in (caught.value.hint or "")


def test_a_server_that_is_no_replica_need_not_log_what_comes_from_others() -> None:
    assert fatal(changed(MYSQL, variables={"log_replica_updates": "OFF"})) == []
    assert fatal(changed(MYSQL, variables={"log_replica_updates": "OFF"}, replicas=None)) == []


def test_a_variable_that_is_gone_is_as_its_last_default() -> None:
    assert fatal(changed(MYSQL, "binlog_format")) == []


def test_all_privileges_hold_the_others() -> None:
    assert fatal(changed(MYSQL, grants=(Grant(frozenset({"ALL PRIVILEGES"}), "*.*"),))) == []


def test_settings_are_made_where_the_flavour_makes_them() -> None:
    assert to_set(MYSQL, "x", "'A'") == "SET PERSIST x = 'A';"
    assert to_set(MARIADB, "x", "'A'") == "SET GLOBAL x = 'A';\nand in my.cnf under [mysqld]: x = A"
    amazon = changed(MYSQL, variables={"basedir": "/rdsdbbin/mysql-8.4.3.R1/"})
    assert to_set(amazon, "x", "'A'") == "in the instance's parameter group: x = A"


def test_the_account_is_as_the_server_knows_it() -> None:
    assert grant_to(changed(MYSQL, account="a@b@10.%"), "SELECT") == "GRANT SELECT ON *.* TO 'a@b'@'10.%';"
