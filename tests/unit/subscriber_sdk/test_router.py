"""Functions instead of a class: which one gets an update, and that its failures are those of a class."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from subscriber_sdk import Router, Update, UsageError, run
from subscriber_sdk.testing import Kit, update
from tests.support.flows import NewWorld

USERS, ORDERS = "shop.users", "shop.orders"


def users(key: int) -> Any:
    return update(USERS, key=key, after={"name": "a"})


def orders(key: int) -> Any:
    return update(ORDERS, key=key, after={"amount": 1})


class Heard:
    """What each handler got."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.router = Router()

    def on(self, *tables: str, name: str = "") -> None:
        @self.router.on(*tables)
        async def handler(update: Update) -> None:
            self.calls.append((name or tables[0], update.key[0] if update.key else update.op))


def test_each_table_has_its_function(wormhole_kit: Kit) -> None:
    heard = Heard()
    heard.on(USERS, "shop.admins", name="people")
    heard.on(ORDERS)
    flow = wormhole_kit.attach(heard.router)
    flow.commit(users(1), orders(2), update("shop.admins", key=3, after={"name": "b"}))
    assert heard.calls == [("people", 1), (ORDERS, 2), ("people", 3)]
    assert flow.datamarker == flow.end


def test_an_exact_name_counts_before_patterns_and_these_in_their_order(wormhole_kit: Kit) -> None:
    heard = Heard()
    heard.on("shop.o*")
    heard.on("shop.*")
    heard.on(USERS)
    flow = wormhole_kit.attach(heard.router)
    flow.commit(
        users(1), orders(2), update("shop.other", key=3, after={"x": 1}), update("shop.a", key=4, after={"x": 1})
    )
    assert heard.calls == [(USERS, 1), ("shop.o*", 2), ("shop.o*", 3), ("shop.*", 4)]


def test_updates_without_a_handler_are_acknowledged_counted_and_named_once(
    wormhole_kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Heard()
    heard.on(USERS)
    flow = wormhole_kit.attach(heard.router)
    with caplog.at_level(logging.WARNING, "subscriber_sdk"):
        flow.commit(orders(1), users(2), orders(3))
        flow.commit(orders(4))
    assert heard.router.unhandled == {ORDERS: 3}
    assert flow.datamarker == flow.end
    (record,) = caplog.records
    assert record.getMessage().startswith(f"table {ORDERS} has no handler: its updates are acknowledged and counted.")


def test_a_handler_that_is_registered_later_counts_from_then_on(wormhole_kit: Kit) -> None:
    heard = Heard()
    heard.on(USERS)
    flow = wormhole_kit.attach(heard.router)
    flow.commit(orders(1))
    heard.on(ORDERS)
    flow.commit(orders(2))
    assert heard.calls == [(ORDERS, 2)]


async def test_plain_functions_run_in_threads_and_the_order_stays(new_world: NewWorld) -> None:
    router, heard = Router(), []
    loop_thread = threading.get_ident()

    @router.on(USERS)
    def plain(update: Update) -> None:
        heard.append((threading.get_ident() == loop_thread, update.key[0]))

    @router.on(ORDERS)
    async def asynchronous(update: Update) -> None:
        heard.append((threading.get_ident() == loop_thread, update.key[0]))

    world, publisher = new_world(router)
    await world.open(publisher)
    world.push(publisher, 1, *range(60), tables=(USERS, ORDERS, ORDERS))
    await world.shards.settled()
    assert heard == [(key % 3 != 0, key) for key in range(60)]
    assert [worker.updates for worker in world.shards.workers()] == [60]


def failing(tables: tuple[str, ...], *, plain: bool) -> tuple[Router, list[Any]]:
    router = Router()
    keys: list[Any] = []

    def fail(update: Update) -> None:
        keys.append(key := update.key[0])
        if key in (-2, -3):
            raise ValueError("negative")

    @router.on(tables[0])
    async def asynchronous(update: Update) -> None:
        fail(update)

    router.on(tables[1])(fail if plain else asynchronous)
    return router, keys


@pytest.mark.parametrize("plain", [True, False])
def test_a_failing_update_is_parked_alone(wormhole_kit: Kit, plain: bool) -> None:
    router, keys = failing((USERS, ORDERS), plain=plain)
    flow = wormhole_kit.attach(router, retry=1, on_failure="park")
    flow.commit(users(1), orders(-2), users(3))
    assert flow.parked == ["test:1:1"]
    assert keys == [1, -2, 1, 3]
    assert flow.datamarker == flow.end


def test_wrong_registrations_are_refused_with_the_name() -> None:
    router = Router()

    @router.on(USERS)
    async def first(update: Update) -> None: ...

    with pytest.raises(UsageError, match=r'table "shop\.users" has a handler already: .*first'):
        router.on("shop.*", USERS)(first)
    with pytest.raises(UsageError, match=r"<lambda> is no handler: it has to take one argument"):
        router.on(ORDERS)(lambda: None)  # type: ignore[type-var]
    wrong: list[tuple[Any, ...]] = [(), ("",), (first,)]
    for tables in wrong:
        with pytest.raises(UsageError, match=r'write @router\.on\("shop\.users"\)'):
            router.on(*tables)


def test_a_router_without_handlers_is_refused_before_anything_is_connected() -> None:
    with pytest.raises(UsageError, match="the router has no handlers"):
        run(Router(), application="app", coordinator="nowhere:1/x")
