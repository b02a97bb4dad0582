"""The tests of ``test_sql`` over MariaDB and MySQL."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.sinks import test_sql
from tests.support.sql_targets import SqlTarget, empty_target

pytestmark = pytest.mark.allow_blocking


@pytest.fixture(params=("mariadb", "mysql"))
def sql_target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlTarget]:
    """Both servers in turn."""
    with empty_target(request, request.param, tmp_path) as target:
        yield target


class TestContract(test_sql.TestContract):
    pass


class TestMirror(test_sql.TestMirror):
    test_rights_that_are_missing_are_named = None  # type: ignore[assignment]  # of PostgreSQL
