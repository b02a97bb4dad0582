"""The public names, the base class, routers of functions, and a subscriber's own figures."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from typing import Any

import pytest

import subscriber_sdk
import subscriber_sdk.testing
from subscriber_sdk import AckLater, FlowHalted, RetryPolicy, Router, Update, UsageError, run
from subscriber_sdk.metrics import samples
from subscriber_sdk.runner import Running
from subscriber_sdk.server.push_server import PushServer
from subscriber_sdk.server.stream import Streams
from subscriber_sdk.testing import Kit, body_of, frames, marker_at, update
from tests.support.flows import NewWorld, Recorder, failing
from wormhole.metrics import METRICS, Exporter
from wormhole.metrics import catalogue as c
from wormhole.model.errors import TargetUnavailable

# --- subscriber: the base class does nothing by itself; what it is told with reads well ---


def test_a_halted_flow_says_what_to_do_and_its_publisher_gets_no_next_step() -> None:
    """The publisher's observers have one of their own; two would contradict each other."""
    halted = FlowHalted("s", 1, "db:5:0", 8, marker_at(4), ValueError("no"))
    assert halted.reason == "shard s is halted at update db:5:0 after 8 attempts: ValueError('no')"
    assert str(halted).startswith(f"{halted.reason}. Next: mend the handler")
    assert "1/1/4" in str(halted)


@pytest.mark.parametrize("seconds", [0, -1, float("inf"), float("nan")])
def test_later_is_a_time_that_comes(seconds: float) -> None:
    with pytest.raises(ValueError, match="a positive number of seconds is needed"):
        AckLater(seconds)


# --- exports ---


def test_the_names_that_an_application_needs() -> None:
    assert subscriber_sdk.__all__ == [
        "UNAVAILABLE",
        "AckLater",
        "BatchInfo",
        "DataLoss",
        "Datamarker",
        "EpochRefused",
        "FlowHalted",
        "HandlerFailed",
        "KeptMarker",
        "Key",
        "KeyRange",
        "LogPosition",
        "LossDecision",
        "LossKind",
        "ModelMismatch",
        "NoticeKind",
        "Op",
        "RetryPolicy",
        "Router",
        "Running",
        "ScanEnd",
        "SchemaChange",
        "ShardNotice",
        "Subscriber",
        "SubscriberOptions",
        "TlsFiles",
        "Transaction",
        "TransactionRolledBack",
        "Unavailable",
        "Update",
        "UsageError",
        "Value",
        "WormholeError",
        "decode",
        "marker_from_bytes",
        "marker_to_bytes",
        "run",
        "serve",
        "transactions",
        "updates",
    ]


def test_the_names_that_its_tests_need() -> None:
    assert subscriber_sdk.testing.__all__ == [
        "Change",
        "Kit",
        "KitFlow",
        "ScriptedPublisher",
        "body_of",
        "frames",
        "marker_at",
        "read",
        "update",
    ]


def test_importing_the_sdk_imports_no_models_no_client_of_the_coordinator_and_no_metrics_library() -> None:
    code = "import subscriber_sdk.metrics, sys; print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"pydantic", "kazoo", "cryptography", "publisher", "prometheus_client"} & set(loaded)
    assert {"subscriber_sdk", "grpc"} <= set(loaded)


def test_every_name_is_there_and_another_name_is_an_attribute_error() -> None:
    assert all(getattr(subscriber_sdk, name) is not None for name in subscriber_sdk.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        subscriber_sdk.nothing  # noqa: B018 - the test


# --- metrics: A subscriber's own figures, without a metrics library ---


async def test_figures_of_a_flow_and_every_metric_of_the_list(new_world: NewWorld) -> None:
    world, publisher = new_world(Recorder(failing(1)), retry=RetryPolicy(attempts=3, first_wait=0.001))
    streams = Streams(world.shards, world.options)
    running = Running(world.options, world.shards, streams, PushServer(streams, world.options))
    await world.open(publisher)
    changes = [update("t", key=number) for number in (1, 2)]
    publisher.teach(change.schema for change in changes)
    publisher.send(frames.batch(1, 1, 1, body_of(changes)))
    await world.shards.settled()
    found = {(sample.metric.name, *sample.labels): sample.value for sample in samples(running)}
    who = ("app", "one")
    assert found["wormhole_subscriber_updates_total", *who, "s"] == 2
    assert found["wormhole_subscriber_handler_failures_total", *who, "s"] == 1
    assert found["wormhole_subscriber_queued_bytes", *who, "s"] == 0
    assert found["wormhole_subscriber_rollback_bytes", *who, "s"] > 0
    assert found["wormhole_subscriber_flows", *who, "resting"] == 1
    wanted = {metric.name for metric in METRICS if metric.exporter is Exporter.SUBSCRIBER}
    of_tls = {c.SUBSCRIBER_CERTIFICATE_ENDS.name, c.SUBSCRIBER_CERTIFICATE_RELOADS.name}
    assert {name for name, *_ in found} == wanted - of_tls


async def test_a_store_that_is_away_is_a_figure_until_the_next_acknowledgement(new_world: NewWorld) -> None:
    retry = RetryPolicy(attempts=1, first_wait=0.001)
    world, publisher = new_world(Recorder(failing(2, error=TargetUnavailable)), retry=retry)
    streams = Streams(world.shards, world.options)
    running = Running(world.options, world.shards, streams, PushServer(streams, world.options))
    for epoch, failures in ((1, 1), (2, 2), (3, 0)):
        await world.open(publisher, epoch=epoch)
        world.push(publisher, 1, 1, epoch=epoch)
        await world.shards.settled()
        found = [sample.value for sample in samples(running) if sample.metric is c.SUBSCRIBER_TARGET]
        assert found == [failures]


# --- router ---


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


def test_an_exact_name_counts_before_patterns_and_these_in_their_order(wormhole_kit: Kit) -> None:
    heard = Heard()
    heard.on("shop.o*")
    heard.on("shop.*")
    heard.on(USERS, "shop.admins", name="people")
    flow = wormhole_kit.attach(heard.router)
    tables = ("shop.other", "shop.a", "shop.admins")
    others = (update(table, key=key, after={"x": 1}) for key, table in enumerate(tables, 3))
    flow.commit(users(1), orders(2), *others)
    assert heard.calls == [("people", 1), ("shop.o*", 2), ("shop.o*", 3), ("shop.*", 4), ("people", 5)]
    assert flow.datamarker == flow.end


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


def failing_router(tables: tuple[str, ...], *, plain: bool) -> tuple[Router, list[Any]]:
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
    router, keys = failing_router((USERS, ORDERS), plain=plain)
    flow = wormhole_kit.attach(router, retry=1, on_failure="park")
    flow.commit(users(1), orders(-2), users(3))
    assert flow.parked == ["test:1:1"]
    assert keys == [1, -2, 1, 3]
    assert flow.datamarker == flow.end


def test_wrong_registrations_are_refused_with_the_name() -> None:
    router = Router()

    @router.on(USERS)
    async def first(update: Update) -> None: ...

    with pytest.raises(UsageError, match=r'"shop\.users" .*first.*\[callback-wrong\]'):
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
