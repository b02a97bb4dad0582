"""What an error of a database means for a sink."""

from __future__ import annotations

import psycopg
import pymysql
import pytest

from sinks.sql.failures import RowRefused, database_error
from wormhole.model.errors import TargetRefused, TargetUnavailable


@pytest.mark.parametrize(
    ("error", "means"),
    [
        (pymysql.err.OperationalError(1213, "deadlock"), TargetUnavailable),
        (pymysql.err.OperationalError(1047, "not prepared for application use"), TargetUnavailable),
        (pymysql.err.OperationalError(1927, "killed"), TargetUnavailable),
        (pymysql.err.OperationalError(1412, "definition has changed"), TargetUnavailable),
        (pymysql.err.OperationalError(1142, "denied"), TargetRefused),
        (pymysql.err.DataError(1406, "too long for column 'a'"), RowRefused),
        (psycopg.errors.DeadlockDetected(), TargetUnavailable),
        (psycopg.errors.AdminShutdown(), TargetUnavailable),
        (psycopg.errors.FeatureNotSupported("cached plan must not change result type"), TargetUnavailable),
        (psycopg.errors.InsufficientPrivilege(), TargetRefused),
        (psycopg.errors.CheckViolation(), RowRefused),
    ],
    ids=lambda value: str(value)[:40] or type(value).__name__,
)
def test_only_the_fault_of_a_row_parks_it(error: Exception, means: type[Exception]) -> None:
    assert type(database_error(error, "orders")) is means


def test_no_value_is_shown() -> None:
    shown = str(database_error(pymysql.err.DataError(1366, "Incorrect value: 'secret' for column `s`.`t`.`a`"), "t"))
    assert ("secret" in shown, "column a" in shown) == (False, True)
