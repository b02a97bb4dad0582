"""``wormholectl sink run`` of a webhook as a process, which is killed while a request is on its way."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from aiohttp import web

from scripts.prepare import ROOT
from subscriber_sdk.testing import update
from tests.support.dialled import dialled
from tests.support.eventually import patience
from tests.support.ports import free_port
from tests.support.webhook_receiver import Request, WebhookReceiver

CONFIG = """
version = 1

[datasets.shop.copies.main.logs.db1]
source = "rocksdb:///var/lib/shop"

[applications.hook]
dataset = "shop"
start = "latest"
subscribers = {{ one = "{listen}" }}

[sinks.hook]
url = "{url}"
secret_file = "receiver.secret"
"""


@contextlib.asynccontextmanager
async def running(config: Path) -> AsyncIterator[asyncio.subprocess.Process]:
    command = (sys.executable, "-m", "wormholectl", "sink", "run", "-c", os.fspath(config))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_ids_are_the_same_after_a_process_was_killed_in_a_request(tmp_path: Path) -> None:
    """The receiver has the request, and nothing receives its answer."""
    arrived = asyncio.Event()

    async def answer(_: Request, __: web.Request) -> web.Response:
        if not arrived.is_set():
            arrived.set()
            await asyncio.Event().wait()
        return web.Response(status=204)

    receiver = await WebhookReceiver(answer=answer).start()
    listen = f"127.0.0.1:{free_port()}"
    receiver.write_secret(tmp_path)
    config = tmp_path / "shop.toml"
    config.write_text(CONFIG.format(listen=listen, url=receiver.url))
    changes = [update("shop.orders", key=key, after={"status": "paid"}) for key in (7, 8)]
    try:
        async with running(config) as process, dialled(listen, wait=True) as publisher:
            await publisher.open("hook")
            await publisher.commit(1, *changes)
            async with patience():
                await arrived.wait()
            process.kill()
            await process.wait()
        async with running(config), dialled(listen, wait=True) as publisher:
            await publisher.open("hook", epoch=2)
            await publisher.commit(1, *changes, epoch=2)
            await publisher.next("ack")
        first, again = receiver.requests
        assert (first.id, first.ids, first.keys) == (again.id, again.ids, [7, 8])
        assert (first.body["epoch"], again.body["epoch"]) == (1, 2)
    finally:
        await receiver.stop()
