"""What every test is held to: nothing blocks the loop, no task is left behind, no error is swallowed, CI skips
nothing."""

from __future__ import annotations

import asyncio
import asyncio.runners
import faulthandler
import gc
import importlib
import logging
import os
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import grpc.aio
import hypothesis
import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from blockbuster import BlockBuster

from scripts.prepare import PACKAGES, ROOT
from tests.support import hot
from tests.support.eventually import PATIENCE_S
from wormhole.config import DatasetConfig
from wormhole.config.datastores import schemes

pytest_plugins = [
    "tests.support.databases",
    "tests.support.extended",
    "tests.support.kafka_server",
    "tests.support.nats_server",
    "tests.support.one_jvm",
    "tests.support.postgres_server",
    "tests.support.redis_server",
    "tests.support.redis_world",
    "tests.support.sql_targets",
    "tests.support.transactional",
    "tests.support.postgres_tail",
    "tests.support.s3",
    "tests.support.spark",
    "tests.support.sql_dialects",
    "tests.support.typescript_client",
    "tests.support.zookeeper",
    "wormhole.ports.testing.plugin",  # also where what is installed is of an earlier commit
    "tests.support.server_tail",  # behind the plugin, which has asserts rewritten in what this imports
]

# No test meets a certificate that an authority of the machine has signed, and to read them all takes every process that
# speaks HTTP or MySQL a tenth of a second.
os.environ["SSL_CERT_FILE"] = os.devnull

# Held for the whole run: otherwise the last channel of some test stops gRPC's poller thread, and joining it blocks a
# loop.
grpc.aio.init_grpc_aio()

IN_CI = os.environ.get("CI", "").lower() in {"1", "true", "yes"}
BUILD_EXT = os.environ.get("WORMHOLE_BUILD_EXT", "")

# Loaded cores make single examples slow without any fault, so no deadline.
# Every run tries the same examples, fewer in a run of the whole suite; a soak draws others.
_any = hypothesis.settings(deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow], print_blob=True)
hypothesis.settings.register_profile("fixed", _any, derandomize=True, database=None, max_examples=50)
hypothesis.settings.register_profile("few", _any, derandomize=True, database=None, max_examples=15)
hypothesis.settings.register_profile("soak", _any, max_examples=5000)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Save what was covered before the worker reports its end: ten seconds later it is killed if it still runs."""
    measuring = sys.modules.get("coverage")
    running = measuring.Coverage.current() if measuring is not None else None
    if running is not None:
        running.stop()
        running.save()


def pytest_configure(config: pytest.Config) -> None:
    from tests.support.extended import is_whole  # after their plugins
    from wormhole.ports.testing import reading

    usual = "few" if is_whole(config) else "fixed"
    hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", usual))
    config.addinivalue_line("markers", "allow_blocking(reason): this test may block the event loop, for that reason")
    reading.LIMIT_S = PATIENCE_S
    config.addinivalue_line("markers", "allow_error_log(reason): asyncio may log errors in this test, for that reason")
    # A mutated or interpreted copy of the tree must test itself, not the checkout the environment points to.
    foreign = [module.__file__ for module in _our_packages() if ROOT not in Path(str(module.__file__)).parents]
    if foreign:
        raise pytest.UsageError(f"these packages come from another folder than {ROOT}: {foreign}")
    if stale := hot.stale_modules():
        raise pytest.UsageError(
            f"compiled modules are older than their source and would hide it: {', '.join(stale)}. Run: make build"
        )


def pytest_report_header() -> list[str]:
    return [*hot.describe(), f"WORMHOLE_BUILD_EXT={BUILD_EXT or 'unset'} CI={IN_CI}"]


def _our_packages() -> list[ModuleType]:
    return [importlib.import_module(name) for name in PACKAGES if (ROOT / name / "__init__.py").exists()]


# --- the collected tests are no garbage --------------------------------------------------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """Nothing of what is made for twelve thousand tests is garbage before the run ends, and the garbage collector would
    look at it again and again: half a second each time, in each process. What tests leave is looked for seldom: that
    took every twelfth second.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000, 20, 20)
        gc.enable()


# --- what only `make soak` runs ----------------------------------------------------------------------------------


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "WORMHOLE_ROUNDS" in os.environ:
        return
    named = set(config.args)  # a test that is asked for by its name runs, as `make mutants` does
    left_out = {
        item
        for item in items
        if item.get_closest_marker("soak") and named.isdisjoint((item.nodeid, item.nodeid.partition("[")[0]))
    }
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


# --- in CI a skip is a failure: everything that could be missing is installed there ------------------------------


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    report = yield
    if IN_CI and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may be missing: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    if IN_CI and report.skipped:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may be missing: {report.longrepr}"
    return report


# --- what goes wrong beside the test's own asserts ---------------------------------------------------------------


class _ErrorRecords(logging.Handler):
    """Collects what asyncio logs as an error: exceptions nobody retrieved, callbacks that raised."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        cause = record.exc_info[1] if record.exc_info else None
        if "PollerCompletionQueue" in record.getMessage() and "Event loop is closed" in str(cause):
            return  # gRPC has one poller for all loops of a process, and wakes those of earlier tests too
        self.messages.append(f"{record.getMessage()} ({cause!r})" if cause else record.getMessage())


_left_behind: list[str] = []
_cancel_all_tasks = asyncio.runners._cancel_all_tasks  # type: ignore[attr-defined]


def _note_tasks_left_behind(loop: asyncio.AbstractEventLoop) -> None:
    """Stand in for the step of `asyncio.Runner.close` that cancels what is left: note whose it was first.

    Only our own coroutines count; a library may keep a service task until its loop ends.
    """
    for task in asyncio.all_tasks(loop):
        code = getattr(task.get_coro(), "cr_code", None)
        origin = Path(code.co_filename) if code else None
        if origin and ROOT in origin.parents and ".venv" not in origin.parts and not task.done():
            _left_behind.append(f"{task.get_name()}: {getattr(code, 'co_qualname', code)} ({origin.name})")
    _cancel_all_tasks(loop)


# Both pytest-asyncio and asyncio.run end their loops through this one function.
asyncio.runners._cancel_all_tasks = _note_tasks_left_behind  # type: ignore[attr-defined]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    _watch_for_hanging(item.config)
    records = _ErrorRecords()
    item.stash[_RECORDS] = records
    logging.getLogger("asyncio").addHandler(records)
    try:
        return (yield)
    finally:
        logging.getLogger("asyncio").removeHandler(records)


_RECORDS = pytest.StashKey[_ErrorRecords]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _keep_pyspark_from_formatting_records()
    _hold_to_the_loop(item.config, item.get_closest_marker("allow_blocking") is None)
    yield


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    _keep_pyspark_from_formatting_records()
    yield


def _keep_pyspark_from_formatting_records() -> None:
    """Keep `caplog.text` plain in a process where PySpark has logged a query's error.

    pytest adds its handler to every logger that does not propagate, and a logger of PySpark's gives each handler that
    it gets a formatter for JSON, which the handler then keeps for the root logger and for every later test.
    """
    if "pyspark.logger" not in sys.modules:
        return
    for logger in logging.root.manager.loggerDict.values():
        if type(logger).__name__ == "PySparkLogger":
            logger.propagate = True  # type: ignore[union-attr]


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """After every fixture is gone, its loop included: what did the test leave?"""
    _keep_pyspark_from_formatting_records()
    yield
    tasks, _left_behind[:] = list(_left_behind), []
    if tasks:
        pytest.fail("asyncio tasks were left pending:\n  " + "\n  ".join(tasks), pytrace=False)
    messages = item.stash[_RECORDS].messages
    if messages and item.get_closest_marker("allow_error_log") is None:
        pytest.fail("asyncio logged errors that no test saw:\n  " + "\n  ".join(messages), pytrace=False)


# --- nothing blocks the loop -------------------------------------------------------------------------------------


class _Detector:
    """Has a blocking call that our code makes while an event loop runs in the same thread raise `BlockingError`.

    It stays active from test to test: to replace and restore all the functions that may block takes a millisecond.
    """

    def __init__(self) -> None:
        DatasetConfig.model_rebuild()
        # The test kit drives handlers from a plain test function: there, nothing else waits for the loop.
        self._found = BlockBuster(_our_packages(), excluded_modules=["subscriber_sdk.testing"])
        locks = self._found.functions["threading.Lock.acquire"]
        locks.can_block_in("coverage/collector.py", "lock_data")  # as it measures
        self._active = False

    def hold(self, active: bool) -> None:
        """Activate it, or end that."""
        if active and not self._active:
            self._found.activate()
        elif self._active and not active:
            self._found.deactivate()
        self._active = active


_DETECTOR = pytest.StashKey[_Detector]()


def _hold_to_the_loop(config: pytest.Config, active: bool) -> None:
    if _DETECTOR not in config.stash:
        config.stash[_DETECTOR] = _Detector()  # made once, since it searches the library for what may block
    # Tests parse configurations on the loop, programs before it or in a thread. What is found belongs to a `sys.path`,
    # to which Spark adds.
    schemes()
    config.stash[_DETECTOR].hold(active)


# --- a test that hangs -------------------------------------------------------------------------------------------

_HANGS_S = 500
_REARMED_S = 60.0
_armed_at = float("-inf")


def _watch_for_hanging(config: pytest.Config) -> None:
    """Have the stacks of all threads printed when a test is under way for 500 seconds, give or take a minute.

    pytest's own ``faulthandler_timeout`` starts and ends a thread for each test, which takes milliseconds on a busy
    machine.
    """
    global _armed_at
    if (now := time.monotonic()) - _armed_at > _REARMED_S:
        _armed_at = now
        faulthandler.dump_traceback_later(_HANGS_S + _REARMED_S, file=config.stash[fault_handler_stderr_fd_key])
