"""``wormholectl subscribe`` at a publisher with its own store on disk."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tests.support.eventually import until
from tests.support.ports import free_port
from tests.system.conftest import running
from tests.system.harness.ensemble import Application, Ensemble, Plan
from wormhole.model.errors import Retryable

__all__ = ["running"]


def _stored(folder: Path) -> dict[str, bytes]:
    """Its files. The one with SQLite's locks (``-shm``) has no content."""
    return {path.name: path.read_bytes() for path in folder.rglob("markers.*") if path.suffix != ".sqlite-shm"}


def _ready(ensemble: Ensemble) -> bool:
    try:
        status = ensemble.status()
    except Retryable:  # it is only starting
        return False
    return len(status.flows) == 4 and bool(status.attach.address)  # its three tables, and the default one


def test_the_marker_store_stays_as_it_is_byte_for_byte(
    running: Callable[[Plan], AbstractContextManager[Ensemble]],
) -> None:
    address = f"127.0.0.1:{free_port()}"
    plan = Plan({"app": Application({}, dials=True)}, zookeeper=False, publisher=f'attach_listen = "{address}"')
    with running(plan) as ensemble:
        ensemble.tell("fill 50 64")
        ensemble.await_true(lambda: _ready(ensemble), "it serves all shards, and listens")
        assert len(_subscribed(ensemble, address)) == 20  # by then the publisher has stored what its start stores
        before = _stored(ensemble.folder / "state")
        assert before["markers.sqlite-wal"]
        shown = _subscribed(ensemble, address)
        assert {one["type"] for one in shown} == {"update"}
        assert _stored(ensemble.folder / "state") == before
        assert {flow.state for flow in ensemble.status().flows} == {"unassigned"}


def _subscribed(ensemble: Ensemble, address: str) -> list[dict[str, Any]]:
    """What twenty updates print, while the writer commits."""
    command = [sys.executable, "-m", "wormholectl", "subscribe", "app", "--publishers", address, "--json"]
    with subprocess.Popen([*command, "--limit", "20"], stdout=subprocess.PIPE, text=True) as process:

        def ended() -> bool:
            ensemble.tell("fill 5 64")
            return process.poll() is not None

        until(ended, "it does not end")
        assert process.stdout is not None
        shown = [json.loads(line) for line in process.stdout]
    assert process.returncode == 0
    return shown
