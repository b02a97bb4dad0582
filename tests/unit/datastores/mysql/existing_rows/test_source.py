"""The tables beside a server that fails; what servers refuse is in tests/integration/test_mysql_existing_*.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pymysql
import pytest

from datastores.mysql.existing_rows.definition import Definition, Listed
from datastores.mysql.existing_rows.key_order import KeyColumn
from datastores.mysql.existing_rows.server import Server
from datastores.mysql.existing_rows.snapshot import MySqlSnapshots
from datastores.mysql.existing_rows.source import MySqlTables
from wormhole.model.errors import SourceUnavailable, UnreadableTable, WormholeError
from wormhole.model.sharding import Sharding
from wormhole.ports.datastore import SourceOptions


class Failing:
    """A connection over which each statement fails."""

    open = True

    def __init__(self, error: Exception) -> None:
        self._error = error

    def bound(self, *_: object) -> None:
        pass

    def _execute_command(self, *_: object) -> None:
        raise self._error

    def _force_close(self) -> None:
        self.open = False


@pytest.mark.parametrize(
    ("error", "kind", "code", "text"),
    [
        (pymysql.OperationalError(2013, "lost"), SourceUnavailable, "source-unavailable", "keys of shop.t: lost"),
        (IndexError(), SourceUnavailable, "peer-not-database", "keys of shop.t: the answer is not"),
        (pymysql.OperationalError(1054, "no n"), SourceUnavailable, "source-unavailable", "shop.t is being altered"),
        (pymysql.ProgrammingError(1146, "no t"), UnreadableTable, "table-unknown", "no table shop.t any more"),
        (pymysql.OperationalError(1142, "denied"), UnreadableTable, "account-lacks-rights", "may not read"),
    ],
)
def test_keys_that_cannot_be_asked_for(
    tmp_path: Path, error: Exception, kind: type[WormholeError], code: str, text: str
) -> None:
    tables = MySqlTables("mysql://w@127.0.0.1/", SourceOptions("log", tmp_path, Sharding("log"), 1 << 20, 0))
    connection: Any = Failing(error)
    tables._session = connection, Server(False, "1", "w@127.0.0.1", 1 << 20, MySqlSnapshots((8, 4, 0)))
    tables._definitions["shop.t"] = Definition(
        Listed("shop", "t", "BASE TABLE", "InnoDB"),
        key=(KeyColumn("n", "int"),),
        key_positions=(0,),
        index="PRIMARY",
        asked=("`n`",),
    )
    with pytest.raises(WormholeError, match=text) as raised:
        tables.skip("shop.t", None, 3)
    assert (type(raised.value), raised.value.problem.code) == (kind, code)
    assert not connection.open
