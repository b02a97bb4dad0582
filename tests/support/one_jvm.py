"""Which process of ``pytest -n`` runs which tests, and in which order.

The tests of a file run together, and all files with Spark do, so that one JVM is enough: starting one, and having Spark
load its classes, costs as much as the tests that use it, and a gigabyte besides. Files with the service of S3 run
together, because a process needs seconds to import it, and those with the TypeScript client, which is built once then.
Files that use a shared MySQL or MariaDB run together too: MySQL takes a second of a core to start. The contracts take
as long as the other such files, so they are apart, and the files of `make extended` are too many for one process. A
test of the system or of the simulation shares nothing with others and runs wherever there is room. What takes longest
comes first, so that no process is left with a long test while the others are through.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from scripts.prepare import ROOT
from tests.support.extended import EXTENDED

if TYPE_CHECKING:
    from xdist.remote import Producer  # type: ignore[import-untyped]


_SPARK: Final = "spark"
_TYPESCRIPT: Final = "typescript"
_CONTRACTS, _MYSQL, _S3 = "mysql, contracts", "mysql", "s3"
_USES_MYSQL: Final = re.compile(r'\b(database|mariadb|mysql)_server: |_server"\)')
_USES_S3: Final = re.compile(r"\b(s3_service: str|storage: Storage|any_store: ArchiveStore)")
_ALONE: Final = ("tests/system/", "tests/simulation/")
_FOLDERS: Final = ("tests/docs/", "tests/integration/", "tests/hostile/", "tests/contract/", "")
_ORDER: Final = (_SPARK, _CONTRACTS, _MYSQL, _S3, *_ALONE, *_FOLDERS)


def scope(nodeid: str) -> str:
    """What a test, seen from the tree's top, has its process in common with."""
    return _shared(nodeid.partition("::")[0]) or nodeid


@cache
def _shared(file: str) -> str:
    """What the tests of ``file`` have their process in common with; empty: each may run in any."""
    path = Path(ROOT, file)
    text = path.read_text() if path.exists() else ""
    if "spark: SparkSession" in text:
        return _SPARK
    if "typescript: Path" in text:
        return _TYPESCRIPT
    if _USES_MYSQL.search(text) and not file.startswith(_ALONE) and file not in EXTENDED:
        return _CONTRACTS if file.startswith("tests/contract/") else _MYSQL
    if _USES_S3.search(text):
        return _S3
    alone = file.startswith(_ALONE) and 'fixture(scope="module"' not in text
    return "" if alone else file


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """What takes longest comes first."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: next(i for i, name in enumerate(_ORDER) if scope(item.nodeid).startswith(name)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> object | None:
    """In place of ``--dist loadfile``; any other distribution is xdist's own."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class OneJvm(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return scope(nodeid)

    return OneJvm(config, log)
