"""A connection to a database server that is cut, stalled, half-closed or dripping amid a transaction loses nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from tests.system.harness.ensemble import Application, Ensemble, Plan

Running = Callable[[Plan], AbstractContextManager[Ensemble]]

VALUES, BYTES = 300, 4096
TRANSACTION = VALUES * BYTES


def amid_a_transaction(ensemble: Ensemble, part: float, fault: Callable[[], None]) -> None:
    """Let ``fault`` happen at that part of a large transaction's bytes; everything else goes on meanwhile."""
    proxy = ensemble.server.proxy
    proxy.after(int(TRANSACTION * part), fault)
    ensemble.tell(f"huge {VALUES} {BYTES}")
    ensemble.tell("go")
    proxy.await_fault()


@pytest.mark.parametrize("flavour", ["mariadb", pytest.param("mysql", marks=pytest.mark.soak)])
def test_every_fault_of_a_connection(flavour: str, running: Running) -> None:
    plan = Plan(
        {"all": Application({"all-1": {"callback": "batch"}})}, datastore=flavour, zookeeper=False, rate=100, tables=()
    )
    with running(plan) as ensemble:
        proxy = ensemble.server.proxy
        ensemble.tell("go")
        ensemble.await_all()

        amid_a_transaction(ensemble, 0.5, proxy.cut)
        ensemble.await_all()

        amid_a_transaction(ensemble, 0.3, proxy.half_close)
        ensemble.await_all()

        before = proxy.from_server
        amid_a_transaction(ensemble, 0.7, proxy.drip)
        ensemble.await_true(lambda: proxy.from_server - before > TRANSACTION * 0.7 + 20_000, "it does not drip")
        proxy.pass_through()
        ensemble.await_all()

        accepted = proxy.accepted
        amid_a_transaction(ensemble, 0.1, proxy.stall)
        # No error comes: the reader must notice the silence, and connect anew.
        ensemble.await_true(lambda: proxy.accepted > accepted, "the reader waits for ever")
        proxy.pass_through()
        ensemble.await_all()

        ensemble.tell("pause")
        ensemble.await_all()
        ensemble.check_state()
        assert not ensemble.checkers["all"].losses
