"""docs/subscriber.md: its programs, driven without a server."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from subscriber_sdk import Datamarker, KeptMarker
from subscriber_sdk.testing import Kit, update
from tests.support.dialled import dialled
from tests.support.pages import Page
from tests.support.ports import free_port
from wormhole.model.errors import HandlerFailed

USERS = update("shop.users", key=7, after={"name": "Ada"})
ORDERS = update("shop.orders", key=8, after={"amount": 5})


def names_of(mentioning: str, replaced: dict[str, str] | None = None) -> dict[str, Any]:
    """Run the one program that has ``mentioning``, without its last lines, which start it."""
    (program,) = [block for block in Page("docs/subscriber.md", replaced or {}).blocks("python") if mentioning in block]
    names: dict[str, Any] = {}
    exec(compile(program, "page", "exec", dont_inherit=True), names)
    return names


def test_the_printer(wormhole_kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    wormhole_kit.attach(names_of("Printer")["Printer"]()).commit(USERS)
    assert capsys.readouterr().out == "test:1:0 insert shop.users (7,) {'name': 'Ada'}\n"


def test_functions_instead_of_a_class(wormhole_kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    wormhole_kit.attach(names_of("Router")["router"]).commit(USERS, ORDERS)
    assert capsys.readouterr().out == "forget (7,)\nchanged shop.orders insert\n"


async def test_a_loop_instead_of_callbacks(capsys: pytest.CaptureFixture[str]) -> None:
    address = f"127.0.0.1:{free_port()}"
    given = {'"cache", coordinator="shop.toml")) as': f'"cache", id="one", listen="{address}")) as'}
    running = asyncio.create_task(names_of("transactions", given)["main"]())
    async with dialled(address, wait=True) as publisher:
        await publisher.open("cache")
        await publisher.push(1, 7, 8)
        await publisher.next("ack")
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
    assert capsys.readouterr().out == "test:1 ['t', 't']\n"


class _Store:
    """Sums and the datamarker, in one transaction."""

    def __init__(self) -> None:
        self.stored: dict[str, KeptMarker] = {}
        self.sum = self.added = 0

    async def kept(self, shard: str) -> KeptMarker | None:
        self.added = 0
        return self.stored.get(shard)

    async def keep(self, shard: str, kept: KeptMarker) -> None:
        self.stored[shard] = kept

    async def add(self, row: Mapping[str, int]) -> None:
        self.added += row["amount"]

    async def commit(self, marker: Datamarker) -> None:
        self.sum, self.added = self.sum + self.added, 0
        self.stored[marker.shard] = replace(self.stored[marker.shard], marker=marker)


def test_a_move_is_made_once_as_the_page_does_it(wormhole_kit: Kit) -> None:
    totals = names_of("KeptMarker")["Totals"](_Store())
    flow = wormhole_kit.attach(totals, retry=1)
    flow.commit(paid := update("shop.orders", key=8, after={"customer": 7, "amount": 5}))
    before = flow.datamarker
    flow.commit(paid)
    flow.move(before)
    flow.crash_and_redeliver(transactions=2)
    assert totals.store.sum == 15
    totals.store = _Store()
    with pytest.raises(HandlerFailed, match="the state of shop is lost"):
        flow.assign()


def test_a_changed_table_is_reported_as_the_page_does_it(wormhole_kit: Kit, capsys: pytest.CaptureFixture[str]) -> None:
    flow = wormhole_kit.attach(names_of("on_schema")["Mirror"](), retry=1)
    flow.commit(update("shop.users", key=1, after={"id": 1}))
    flow.commit(update("shop.users", key=2, after={"id": 2, "name": "Ada"}))
    assert capsys.readouterr().out.splitlines() == [
        "shop.users has the column id (int)",
        "shop.users has the column name (text)",
    ]
    with pytest.raises(HandlerFailed, match=r"the key of shop\.users changed"):
        flow.commit(update("shop.users", key={"code": "a"}, after={"id": 2, "name": "Ada"}))
