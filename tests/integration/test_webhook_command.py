"""``wormholectl sink run`` of a webhook as a process, which is killed while a request is on its way."""

from __future__ import annotations

import asyncio
from pathlib import Path

from aiohttp import web

from subscriber_sdk.testing import update
from tests.support.dialled import dialled
from tests.support.eventually import patience
from tests.support.ports import free_port
from tests.support.sink_process import running_sink, sink_config
from tests.support.webhook_receiver import Request, WebhookReceiver


async def test_ids_are_the_same_after_a_process_was_killed_in_a_request(tmp_path: Path) -> None:
    """The receiver has the request, and nothing receives its answer."""
    arrived = asyncio.Event()

    async def answer(request: Request, _: web.Request) -> web.Response:
        if request.keys and not arrived.is_set():
            arrived.set()
            await asyncio.Event().wait()
        return web.Response(status=204)

    receiver = await WebhookReceiver(answer=answer).start()
    listen = f"127.0.0.1:{free_port()}"
    receiver.write_secret(tmp_path)
    config = sink_config(tmp_path, "hook", listen, f'url = "{receiver.url}"\nsecret_file = "receiver.secret"')
    changes = [update("shop.orders", key=key, after={"status": "paid"}) for key in (7, 8)]
    try:
        async with running_sink(config) as process, dialled(listen, wait=True) as publisher:
            await publisher.open("hook")
            await publisher.commit(1, *changes)
            async with patience():
                await arrived.wait()
            process.kill()
            await process.wait()
        async with running_sink(config), dialled(listen, wait=True) as publisher:
            await publisher.open("hook", epoch=2)
            await publisher.commit(1, *changes, epoch=2)
            await publisher.next("ack")
        first, again = (request for request in receiver.requests if request.keys)  # the others are examinations
        assert (first.id, first.ids, first.keys) == (again.id, again.ids, [7, 8])
        assert (first.body["epoch"], again.body["epoch"]) == (1, 2)
    finally:
        await receiver.stop()
