"""No datastore's name stands in the product outside the datastore's own folder: names, texts, comments and files."""

from __future__ import annotations

import io
import re
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("wormhole", "caravan", "publisher", "subscriber_sdk", "monitor", "spark_replay", "wormholectl")
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["wormhole.sources"]
OWN = {value.split(".")[2] for value in DECLARED.values()}
NAME = re.compile("|".join(sorted({*DECLARED, *OWN})), re.IGNORECASE)
STORED = frozenset[str]()
"""Names of stored fields that hold one. None does today."""


def named(code: str) -> Iterator[tuple[int, str]]:
    """Line and text of every token with a datastore's name."""
    for token in tokenize.generate_tokens(io.StringIO(code).readline):
        if token.string not in STORED and NAME.search(token.string):
            yield token.start[0], token.string


def test_no_datastore_is_named_outside_its_folder() -> None:
    sources = ROOT / "publisher" / "sources"
    own = [sources / name for name in OWN]
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if any(folder in path.parents for folder in own):
                continue
            found += [f"{path.relative_to(ROOT)}:{line}: {text[:80]}" for line, text in named(path.read_text("utf-8"))]
            if NAME.search(path.name):
                found.append(f"{path.relative_to(ROOT)}: its name")
    assert not found, "\n".join(found)


def test_every_declared_datastore_has_a_folder_of_its_own() -> None:
    assert {"mysql", "rocksdb"} <= OWN
    assert {"mysql", "mariadb", "rocksdb"} <= set(DECLARED)
    for name in OWN:
        assert (ROOT / "publisher" / "sources" / name / "datastore.py").is_file()


@pytest.mark.parametrize(
    "code", ["mysql_port = 1", 'x = "MariaDB"', "# a RocksDB", '"""Of mysql."""', 'f"rocksdb://{x}"']
)
def test_a_name_is_found_wherever_it_stands(code: str) -> None:
    assert list(named(code))
