"""No datastore's name or term is in the product outside the datastore's own folder: in code, texts, comments, files."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "wormhole",
    "caravan",
    "datastores",
    "publisher",
    "subscriber_sdk",
    "monitor",
    "spark_replay",
    "wormholectl",
)
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]["wormhole.sources"]
OWN = {value.split(".")[1] for value in DECLARED.values()}
TERMS = {"binlog", "gtid", r"my\.cnf", "innodb", "column.famil", "pgoutput", "walsender", r"\blsn\b"}
LIBRARIES = {"sqlite": r"sqlite://|datastores[./]sqlite"}
"""Datastores whose library also writes files of our own: what is looked for in place of the name."""
NAMES = {LIBRARIES.get(name, name) for name in {*DECLARED, *OWN, *TERMS}}
NAME = re.compile("|".join(sorted(NAMES)), re.IGNORECASE)
SETTINGS = re.compile("binlog_folder")
"""What a log's settings are called where users of one datastore write them. Who has it is in ``Datastore.refuses``."""
TARGETS = {
    ROOT / "subscriber_sdk" / "transactional" / name for name in ("psycopg.py", "sql.py", "sqlalchemy.py", "django.py")
}
"""The databases that an application writes to. That a log may come from one of the same make is of no account there."""
ARCHIVES = {
    *(ROOT / "spark_replay" / "archive").glob("*.py"),
    *(ROOT / "spark_replay" / name for name in ("tables/folder.py", "commands/tables.py")),
}
"""What writes archives and tables to a storage, which may be one whose log is a source too."""
STORAGES = re.compile(r'(?<="s3", )"hdfs"|hdfs://host:port/folder')
"""How a setting of an archive names such a storage."""
TEXTS = {".py", ".pyi", ".pxd", ".html", ".js", ".css", ".svg"}


def named(text: str) -> Iterator[tuple[int, str]]:
    """Number and text of every line with a datastore's name."""
    for number, line in enumerate(text.splitlines(), 1):
        if NAME.search(STORAGES.sub("", SETTINGS.sub("", line))):
            yield number, line.strip()


def test_no_datastore_is_named_outside_its_folder() -> None:
    own = [ROOT / "datastores" / name for name in OWN]
    found = []
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix not in TEXTS or path in TARGETS | ARCHIVES or any(folder in path.parents for folder in own):
                continue
            found += [f"{path.relative_to(ROOT)}:{line}: {text[:80]}" for line, text in named(path.read_text("utf-8"))]
            if NAME.search(path.name):
                found.append(f"{path.relative_to(ROOT)}: its name")
    assert not found, "\n".join(found)


def test_every_declared_datastore_has_a_folder_of_its_own() -> None:
    assert {"mysql", "postgres", "rocksdb"} <= OWN
    assert {"mysql", "mariadb", "postgres", "postgresql", "rocksdb"} <= set(DECLARED)
    for name in OWN:
        assert (ROOT / "datastores" / name / "datastore.py").is_file()


@pytest.mark.parametrize(
    "code",
    [
        "mysql_port = 1",
        'x = "MariaDB"',
        "# a RocksDB",
        '"""Of mysql."""',
        'f"rocksdb://{x}"',
        "a GTID set",
        "of Postgres",
        "its LSN",
        "sqlite:///shop.db",
    ],
)
def test_a_name_is_found_wherever_it_is(code: str) -> None:
    assert list(named(code))
