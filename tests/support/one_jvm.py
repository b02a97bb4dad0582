"""Which process of ``pytest -n`` runs which tests: those of a file together, and all files with Spark in one, so that one JVM is enough.

Starting a JVM, and having Spark load its classes, costs as much as the tests that use it, and a gigabyte besides.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.prepare import ROOT

if TYPE_CHECKING:
    from xdist.remote import Producer  # type: ignore[import-untyped]

__all__ = ["pytest_xdist_make_scheduler", "scope"]


@cache
def scope(file: str) -> str:
    """What a test file, seen from the tree's top, has its process in common with."""
    path = Path(ROOT, file)
    return "spark" if path.exists() and "spark: SparkSession" in path.read_text() else file


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> object | None:
    """In place of ``--dist loadfile``; any other distribution is xdist's own."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]

    class OneJvm(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return scope(super()._split_scope(nodeid))

    return OneJvm(config, log)
