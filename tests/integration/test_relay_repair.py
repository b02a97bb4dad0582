"""A relay that gives up log of a real server, and the repair of the flow that needed it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from datastores.postgres.existing_rows.source import PostgresTables
from datastores.postgres.source import PostgresSource
from publisher.publisher import Publisher
from publisher.push.flow import PublisherFlow
from publisher.push.stages import Stage
from publisher.relay.settings import RelayIdentity, RelaySettings
from publisher.relay.source import RelayedSource
from publisher.sources.supervised import SupervisedSource
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.support.clocks import FAST, fast_clock
from tests.support.copying_subscriber import running_copy
from tests.support.eventually import eventually
from tests.support.halting_copy import HaltingCopy
from tests.support.postgres_scene import PostgresScene
from tests.support.postgres_server import NewPostgres
from tests.support.scripted_subscriber import scripted_subscriber
from wormhole.wire.v1 import admin_pb2

_KEY, _FLOW, _TABLE = ("app", "log"), "app/log", "public.users"
_ROWS = 2_000
_SETTINGS = RelaySettings("hold", budget=1 << 20, slot_budget=64 << 10, compress=False)
_IDENTITY = RelayIdentity("log", "postgres", "log", 1 << 26, "")


class Scene(World):
    """A publisher of one table behind a small relay."""

    def __init__(self, there: PostgresScene, folder: Path) -> None:
        super().__init__(fast_clock(), 60.0 * FAST)
        self.settings["grace_period"] = 0.1
        self.there, self.folder = there, folder
        self.options = replace(there.options, log="log")

    async def sql(self, *statements: str) -> list[tuple[Any, ...]]:
        return await asyncio.to_thread(self.there.sql, *statements)

    async def start(self) -> None:
        """Begin to read the log, as a publisher does that was started."""
        await asyncio.to_thread(self._start)

    def _start(self) -> None:
        inner = PostgresSource(self.there.url, self.options)
        relayed = RelayedSource(inner, self.folder / "relay", _IDENTITY, _SETTINGS)
        self.source: Any = SupervisedSource(relayed, relayed)
        self.relay = self.source.relay
        self.tables: Any = PostgresTables(self.there.url, self.options)
        self.source.start()

    async def recorded(self) -> None:
        """Wait until the relay has what was written: more at a time would not fit it."""
        end = (await asyncio.to_thread(self.source.latest)).order

        def has_it() -> bool:
            tip = self.source.status().relay.tip
            return tip is not None and tip.order >= end

        await eventually(has_it, "the relay has the log")

    async def stop(self) -> None:
        await asyncio.to_thread(self.source.stop)


def _flow(publisher: Publisher) -> PublisherFlow:
    return publisher.assigner.flows[_KEY]


async def _declined(publisher: Publisher) -> PublisherFlow:
    def held() -> bool:
        flow = publisher.assigner.flows.get(_KEY)
        return flow is not None and flow.stage is Stage.DECLINED

    await eventually(held, "held at the loss")
    return _flow(publisher)


async def test_only_rows_that_changed_in_what_the_relay_gave_up_are_read_again(
    new_postgres: NewPostgres, tmp_path: Path
) -> None:
    """The publisher ends between the request of the rows and the acceptance of the loss."""
    statements = ("CREATE TABLE users (id int PRIMARY KEY, value text)", "CREATE TABLE noise (id serial, value text)")
    noise = "INSERT INTO noise (value) SELECT repeat('n', 1000) FROM generate_series(1, 10)"
    server = await asyncio.to_thread(new_postgres)
    there = await asyncio.to_thread(PostgresScene, server, "postgres", *statements)
    scene = Scene(there, tmp_path)
    scene.application(tables=["public.users"])
    async with scripted_subscriber("app", "s1") as wire, running_copy(HaltingCopy(wire)) as copy:

        async def is_equal() -> bool:
            rows = dict(await scene.sql("SELECT id, value FROM users"))
            return {key[0]: row["value"] for key, (_, row) in copy.rows[_TABLE].items()} == rows

        await scene.start()
        async with scene.publisher() as publisher:
            await scene.register(wire)
            await scene.sql(f"INSERT INTO users SELECT n, 'old' FROM generate_series(1, {_ROWS}) n")
            await eventually(lambda: len(copy.rows.get(_TABLE, ())) == _ROWS, "the copy is made")
            for _ in range(2):  # in a file of its own
                await scene.sql(*[noise] * 10)
                await scene.recorded()
            end = await asyncio.to_thread(scene.source.latest)
            await eventually(lambda: _flow(publisher).delivery.durable.order >= end.order, "it is stored")
            await scene.leaves(wire)
            await eventually(lambda: _flow(publisher).stage is Stage.UNASSIGNED, "away")
            await scene.sql(
                "UPDATE users SET value = 'new' WHERE id % 100 = 1",
                "DELETE FROM users WHERE id % 100 = 2",
                "UPDATE users SET id = id + 10000 WHERE id % 100 = 3",
                "INSERT INTO users VALUES (20000, 'more')",
            )
            marker = _flow(publisher).delivery.durable
            for _ in range(40):
                await scene.sql(*[noise] * 10)
                await scene.recorded()
                await publisher.housekeeping.release()
                if (await asyncio.to_thread(scene.source.earliest)).order > marker.order:
                    break
            else:
                pytest.fail("the relay gives up nothing")
        await scene.stop()
        await scene.sql("UPDATE users SET value = 'after' WHERE id = 50")
        await scene.start()
        async with scene.publisher() as publisher:
            await scene.register(wire)
            control = operated(publisher).control
            flow = await _declined(publisher)
            assert flow.loss.repair == "81 keys of 1 table, from the relay"
            wanted = admin_pb2.BackfillStart(lost=True)
            await control.change(admin_pb2.ChangeRequest(who="m@ops", flow=_FLOW, backfill_start=wanted))
        await scene.stop()
        await scene.start()
        async with scene.publisher() as publisher:
            await _accepted(publisher)
        await scene.stop()
        assert await is_equal()
        assert (copy.reads, copy.ends) == (20 + 20 + 1, [])
        assert not list((tmp_path / "relay").glob("*.lost"))
    await asyncio.to_thread(there.tables.close)


async def _accepted(publisher: Publisher) -> None:
    await _declined(publisher)
    asked = admin_pb2.ChangeRequest(who="m@ops", flow=_FLOW, accept_loss=admin_pb2.AcceptLoss())
    await operated(publisher).control.change(asked)
    await eventually(lambda: (made := _flow(publisher).control.backfill) and made.ended == "done", "the rows are sent")
    end = await asyncio.to_thread(publisher.log.source.latest)
    await eventually(lambda: _flow(publisher).delivery.durable.order >= end.order, "the changes behind them are stored")
    await publisher.housekeeping.release()
