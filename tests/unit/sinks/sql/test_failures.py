"""What an error of a database means for a sink."""

from __future__ import annotations

import sqlite3

import psycopg
import pymysql
import pytest

from sinks.sql.failures import RowRefused, database_error, refusal
from wormhole.model.errors import TargetRefused, TargetUnavailable


def _sqlite(name: str) -> sqlite3.OperationalError:
    error = sqlite3.OperationalError(name)
    error.sqlite_errorname = name
    return error


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
        (psycopg.OperationalError("server closed the connection unexpectedly"), TargetUnavailable),
        (psycopg.OperationalError("FATAL:  sorry, too many clients already"), TargetUnavailable),
        (pymysql.err.OperationalError(1130, "Host is not allowed to connect"), TargetRefused),
    ],
    ids=lambda value: str(value)[:40] or type(value).__name__,
)
def test_only_the_fault_of_a_row_parks_it(error: Exception, means: type[Exception]) -> None:
    assert type(database_error(error, "orders")) is means


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (pymysql.err.OperationalError(1698, "Access denied"), "login-refused"),
        (pymysql.err.OperationalError(1044, "Access denied to database"), "account-lacks-rights"),
        (psycopg.errors.InvalidPassword(), "login-refused"),
        (psycopg.OperationalError('FATAL:  role "a" is not permitted to log in'), "login-refused"),
        (psycopg.OperationalError('FATAL:  no pg_hba.conf entry for host "::1"'), "login-refused"),
        (psycopg.OperationalError('FATAL:  permission denied for database "a"'), "account-lacks-rights"),
        (_sqlite("SQLITE_READONLY"), "account-lacks-rights"),
    ],
    ids=lambda value: str(value)[:40] or type(value).__name__,
)
def test_a_login_and_a_right_are_named(error: Exception, code: str) -> None:
    found = refusal(error)
    assert found is not None
    assert found.code == code


def test_what_passes_by_itself_is_no_refusal() -> None:
    assert refusal(_sqlite("SQLITE_READONLY_DBMOVED")) is None
    assert refusal(psycopg.errors.CheckViolation()) is None


def test_no_value_is_shown() -> None:
    shown = str(database_error(pymysql.err.DataError(1366, "Incorrect value: 'secret' for column `s`.`t`.`a`"), "t"))
    assert ("secret" in shown, "column a" in shown) == (False, True)
