"""A subscriber that finds in ZooKeeper where its publisher is dialled: behind a forwarder with a port of its own."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.support.fault_proxy import FaultProxy
from tests.support.ports import free_port
from tests.system.conftest import running
from tests.system.harness.ensemble import Application, Ensemble, Plan

__all__ = ["running"]


def test_it_is_dialled_where_it_advertises_and_again_after_a_kill(
    running: Callable[[Plan], AbstractContextManager[Ensemble]],
) -> None:
    port = free_port()
    with FaultProxy("127.0.0.1", port) as forwarder:
        publisher = f'attach_listen = "127.0.0.1:{port}"\nattach_advertise = "127.0.0.1:{forwarder.port}"'
        with running(Plan({"app": Application({"one": {}}, dials=True)}, publisher=publisher)) as ensemble:
            ensemble.tell("go")
            ensemble.await_all()
            assert forwarder.accepted
            ensemble.publisher.kill()
            before = forwarder.accepted
            ensemble.publisher.start()
            ensemble.await_all()
            assert forwarder.accepted > before
