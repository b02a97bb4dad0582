"""With ``pytest -n`` each process collects only the files that it runs, and each when its turn comes.

Otherwise every process imports all test modules and makes all tests, before the first one runs. For the scheduler such
a file is one test. A file whose tests may run in several processes is collected in the beginning, as ever.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import pytest

from tests.support.one_jvm import scope

if TYPE_CHECKING:
    from xdist.workermanage import WorkerController  # type: ignore[import-untyped]

__all__ = ["WHOLE", "LaterModule", "all_of_a_file_runs"]

WHOLE: Final = "whole file"
"""The name of a file's one item until its turn comes."""
_KEY: Final = "file_by_file"


class _WholeFile(pytest.Item):
    """Stands for the tests of a file that is not imported yet."""

    def runtest(self) -> NoReturn:
        raise AssertionError("its tests run in its place")


class LaterModule(pytest.Module):
    """A test module that is imported when its turn comes."""

    later = True

    def collect(self) -> Iterable[pytest.Item | pytest.Collector]:
        return [_WholeFile.from_parent(self, name=WHOLE)] if self.later else super().collect()


def all_of_a_file_runs(config: pytest.Config) -> bool:
    """Whether files are distributed, and tests are chosen by file at most."""
    chosen = config.option.keyword or config.option.markexpr or any("::" in argument for argument in config.args)
    return config.getvalue("dist") == "loadfile" and not chosen


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: WorkerController) -> None:
    """The options of a worker do not contain how tests are distributed."""
    node.workerinput[_KEY] = all_of_a_file_runs(node.config)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    if not getattr(parent.config, "workerinput", {}).get(_KEY):
        return None
    module: LaterModule = LaterModule.from_parent(parent, path=module_path)
    whole = f"{module.nodeid}::{WHOLE}"
    return module if scope(whole) != whole else None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Collect the file, and run its tests as the session would."""
    if not isinstance(item, _WholeFile):
        return None
    module, session = item.parent, item.session
    assert isinstance(module, LaterModule)
    module.later = False
    tests = list(session.genitems(module))
    session.config.hook.pytest_collection_modifyitems(session=session, config=session.config, items=tests)
    place = session.items.index(item)
    for test, following in zip(tests, [*tests[1:], nextitem], strict=False):
        session.items[place] = test  # where xdist looks for what it reports
        session.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        if session.shouldfail or session.shouldstop:
            break
    session.items[place] = item
    return True
