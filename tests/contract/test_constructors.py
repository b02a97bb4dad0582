"""A class that needs many parts has many tasks: hand-written constructors take at most seven parameters."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from scripts.prepare import PACKAGES, ROOT

_MOST = 7
_LARGER = {
    # What a reader of a log follows is many values; each is set once and read in its hot loop.
    "caravan/flow.py:CaravanFlow": 8,
    "datastores/mysql/log/opening.py:Opening": 10,
    "datastores/mysql/log/reader.py:BinlogReader": 11,
    "datastores/mysql/log/walk.py:LogWalk": 12,
    "datastores/postgres/decode/table.py:Table": 13,
    "datastores/postgres/log/opening.py:Opening": 9,
    "datastores/postgres/log/reader.py:WalReader": 14,
    "datastores/rocksdb/log/reader.py:RocksReader": 9,
    "subscriber_sdk/stream/session.py:Session": 10,
    "subscriber_sdk/work/flow_worker.py:FlowWorker": 9,
    "subscriber_sdk/work/recovery.py:Recovery": 8,
}


def _constructors() -> Iterator[tuple[str, int]]:
    """Each constructor with the number of its parameters beside ``self``."""
    for path in (path for package in PACKAGES for path in (ROOT / package).rglob("*.py")):
        text = path.read_text()
        tree = ast.walk(ast.parse(text)) if "def __init__(" in text else ()  # to parse all takes a second more
        for kind in [node for node in tree if isinstance(node, ast.ClassDef)]:
            for node in kind.body:
                if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                    given = node.args
                    count = len(given.posonlyargs) + len(given.args) + len(given.kwonlyargs) - 1
                    yield f"{path.relative_to(ROOT)}:{kind.name}", count


def test_constructors_take_at_most_seven_parameters() -> None:
    larger = {name: count for name, count in _constructors() if count > _LARGER.get(name, _MOST)}
    assert larger == {}, "move a responsibility, or group what belongs together by meaning"
