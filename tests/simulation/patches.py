"""What of the product reads the time, chance, the host or its disk by itself, replaced for a whole Python process.

Only :mod:`tests.simulation.__main__` installs this: nothing of it is taken back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from publisher import publisher as publisher_module
from publisher.flows import assigner, known_flows
from publisher.stores import guarded_client
from publisher.stores.markers import zookeeper as marker_store
from tests.simulation.stream import SimulatedStream
from tests.simulation.threads import Threads, VirtualLock
from tests.simulation.world import World
from tests.simulation.zookeeper import Ensemble
from tests.simulation.zookeeper_client import VirtualClient
from tests.support.present import present
from wormhole.config import CoordinatorConfig
from wormhole.coordination import kazoo_session, log_claim
from wormhole.coordination.kazoo_client import hosts_and_root
from wormhole.coordination.records import Paths
from wormhole.host.clock import Clock

__all__ = ["Present", "install"]


class Present:
    """The schedule that runs."""

    world: World
    threads: Threads
    ensemble: Ensemble
    disk: dict[Path, dict[str, Any]]


class _Host:
    """Takes the place of modules that know the present process."""

    @staticmethod
    def gethostname() -> str:
        assert Present.world.process is not None
        return Present.world.process.host

    @staticmethod
    def getpid() -> int:
        assert Present.world.process is not None
        return Present.world.process.pid

    @staticmethod
    def token_hex(size: int) -> str:
        return random.randbytes(size).hex()

    @staticmethod
    def Lock() -> VirtualLock:
        return VirtualLock(Present.threads)


class _Log(logging.Handler):
    """Failures that the product logs and survives must not happen here. Everything else goes to the trace."""

    def emit(self, record: logging.LogRecord) -> None:
        world = Present.world
        if record.exc_info:
            text = self.format(record)
            world.violation(f"{world.process} logs {text}")
        elif world.traced:
            name = "" if world.process is None else world.process.name
            world.trace(f"{name} logs: {record.getMessage()}")


def _virtual_client(
    settings: CoordinatorConfig,
    on_negotiated: Callable[[float, float], None] = lambda seconds, asked: None,
    clock: Callable[[], float] = lambda: 0.0,
) -> VirtualClient:
    process = present(Present.world.process)
    return VirtualClient(Present.ensemble, process, Paths(hosts_and_root(settings)[1]), on_negotiated)


def _pause(seconds: float) -> None:
    Present.threads.pause(seconds)


def _read(path: Path) -> dict[str, Any]:
    return dict(Present.disk.get(path, {}))


def _write(path: Path, content: dict[str, Any], *, sync: bool = True) -> None:
    Present.disk[path] = dict(content)


def _nothing(_task: object) -> None: ...


def install(*, traced: bool) -> None:
    """Replace it. ``traced``: informative log lines are wanted, too."""
    here: Any = _Host
    replaced: list[tuple[Any, str, Any]] = [
        (publisher_module, "os", here),
        (assigner, "SubscriberStream", SimulatedStream),
        (known_flows, "read_state", _read),
        (known_flows, "write_state", _write),
        (guarded_client, "threading", here),
        (guarded_client, "new_client", _virtual_client),
        (marker_store, "threading", here),
        (marker_store, "SYSTEM_CLOCK", Clock(pause=_pause)),
        (kazoo_session, "new_client", _virtual_client),
        (log_claim, "secrets", here),
    ]
    for module, name, value in replaced:
        assert hasattr(module, name), f"{module.__name__} has no {name}"
        setattr(module, name, value)
    # The tasks of all loops are never listed, and their list would be kept in the order of their addresses.
    asyncio.tasks._all_tasks.add = _nothing  # type: ignore[attr-defined]
    # What a process was about to do when it was killed may try to go on as it is thrown away.
    sys.unraisablehook = lambda _: None
    warnings.simplefilter("ignore", RuntimeWarning)
    root = logging.getLogger()
    root.handlers[:] = [_Log()]
    root.setLevel(logging.INFO if traced else logging.ERROR)
