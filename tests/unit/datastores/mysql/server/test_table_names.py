from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from datastores.mysql.server import table_names as module
from datastores.mysql.server.catalog import Catalog
from datastores.mysql.server.table_names import look
from wormhole.model.errors import SourceUnavailable


@pytest.mark.parametrize("folds", [0, 1, 2])
def test_the_servers_tables_come_into_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folds: int) -> None:
    def query(connection: Any, sql: str, args: object = (), **_: object) -> list[dict[str, Any]]:
        if "folds" in sql:
            return [{"folds": folds}]
        keyed = [{"db": "shop", "name": "a"}]
        return keyed if "COLUMN_KEY" in sql else [*keyed, {"db": "shop", "name": "b"}]

    monkeypatch.setattr(module, "query", query)
    catalog = Catalog(tmp_path / "tables.jsonl")
    assert look(cast(Any, None), catalog) == [("shop", "a", True), ("shop", "b", False)]
    assert catalog.folds is (folds != 0)
    assert Catalog(tmp_path / "tables.jsonl").keys("shop", "b") == (False, True)


def test_an_answer_that_makes_no_sense(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "query", lambda *_, **__: [])
    with pytest.raises(SourceUnavailable, match="is not valid"):
        look(cast(Any, None), Catalog(tmp_path / "tables.jsonl"))
