"""``wormholectl sink run`` as a process, and what it leaves when it is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from pathlib import Path

import aiohttp

from scripts.prepare import ROOT
from subscriber_sdk.testing import update
from tests.integration.publisher.conftest import World
from tests.support.command_line import run
from tests.support.dialled import dialled
from tests.support.eventually import eventually, patience
from tests.support.ports import free_port
from tests.support.sink_process import running_sink, sink_config

KEY = ("lines", "log.t")


def written(folder: Path, listen: str, lines: Path) -> Path:
    return sink_config(folder, "lines", listen, f'url = "jsonlines://{lines}"')


async def test_a_store_that_cannot_be_used_is_in_the_metrics_before_a_flow_comes(tmp_path: Path) -> None:
    config = written(tmp_path, f"127.0.0.1:{free_port()}", tmp_path / "missing")
    http = f"127.0.0.1:{free_port()}"
    async with running_sink(config, "--http", http), aiohttp.ClientSession(f"http://{http}") as client, patience():
        while True:
            with contextlib.suppress(aiohttp.ClientConnectorError):
                text = await (await client.get("/metrics")).text()
                break
            await asyncio.sleep(0.05)
    assert 'wormhole_sink_store_problem{sink="lines",subscriber="one",code="target-unavailable"} 1.0' in text


async def test_a_second_process_under_the_same_address_ends_and_the_first_goes_on(tmp_path: Path) -> None:
    listen, folder = f"127.0.0.1:{free_port()}", tmp_path / "lines"
    folder.mkdir()
    config = written(tmp_path, listen, folder)
    async with running_sink(config), dialled(listen, wait=True) as publisher:
        await publisher.open("lines")
        command = (sys.executable, "-m", "wormholectl", "sink", "run", "lines", "-c", os.fspath(config))
        second = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stderr=asyncio.subprocess.PIPE)
        async with patience():
            _, said = await second.communicate()
        assert second.returncode == 2
        assert said.count(b"error [") == said.count(b"error [address-taken]") == 1
        await publisher.commit(1, update("shop.orders", key=7, after={"status": "paid"}))
        await publisher.next("ack")


async def test_a_sink_dials_its_publisher(tmp_path: Path) -> None:
    world, folder = World(attaches=True), tmp_path / "lines"
    folder.mkdir()
    world.application("lines")
    end = world.commit("a")
    async with world.publisher() as publisher:
        await eventually(lambda: publisher.listener.address, "it listens")
        settings = f'url = "jsonlines://{folder}"\ndial = ["{publisher.listener.address}"]'
        config = sink_config(tmp_path, "lines", "", settings)
        text = config.read_text().replace('subscribers = { one = "" }', 'connect = "publisher"')
        config.write_text(text.replace("version = 1", "version = 1\n\n[coordinator]\nstatic = true"))
        assert (await asyncio.to_thread(run, "sink", "check", "lines", "-c", str(config)))[0] == 0
        async with running_sink(config) as process:
            await eventually(lambda: KEY in world.markers.records, "registered")
            await eventually(lambda: world.markers.records[KEY].marker.order == end.order, "stored")
            process.send_signal(signal.SIGTERM)
            async with patience():
                assert await process.wait() == 0
    [document] = [json.loads(line) for path in folder.iterdir() for line in path.read_bytes().splitlines()]
    assert document["table"] == "t"


async def test_documents_outlive_the_process_and_its_successor_finishes_its_file(tmp_path: Path) -> None:
    listen, folder = f"127.0.0.1:{free_port()}", tmp_path / "lines"
    folder.mkdir()
    config = written(tmp_path, listen, folder)
    http = f"127.0.0.1:{free_port()}"
    async with running_sink(config, "--http", http) as process, dialled(listen, wait=True) as publisher:
        await publisher.open("lines")
        await publisher.commit(1, update("shop.orders", key=7, after={"status": "paid"}))
        await publisher.next("ack")
        async with aiohttp.ClientSession(f"http://{http}") as client:
            text = await (await client.get("/metrics")).text()
            assert (await client.get("/healthz")).status == 200
        assert 'wormhole_sink_written_total{sink="lines",subscriber="one"} 1.0' in text
        assert 'wormhole_subscriber_updates_total{application="lines",subscriber="one",shard="s"} 1.0' in text
        assert 'wormhole_sink_info{sink="lines",subscriber="one",kind="JSON lines",guarantee="at least once"}' in text
        process.kill()
        await process.wait()
    async with running_sink(config) as process, dialled(listen, wait=True) as publisher:
        await publisher.open("lines", epoch=2)
        (finished,) = folder.iterdir()
        document = json.loads(finished.read_bytes())
        assert (finished.suffix, document["table"], document["after"]) == (".jsonl", "shop.orders", {"status": "paid"})
        process.send_signal(signal.SIGTERM)
        async with patience():
            assert await process.wait() == 0
