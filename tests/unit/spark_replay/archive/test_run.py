"""The archiver's process: it serves, tells its metrics, and leaves in order when it is told to."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from spark_replay.archive import run
from spark_replay.archive.store import open_store
from tests.support.ports import free_port
from wormhole.config import Config, load
from wormhole.model.errors import ConfigError


def config(folder: Path) -> Config:
    file = folder / "shop.toml"
    file.write_text(f"""
version = 1
[coordinator]
static = true
[datasets.shop]
archive = {{ to = "archive" }}
[datasets.shop.copies.main.logs.db1]
source = "rocksdb://{folder}/store"
[applications.archive]
dataset = "shop"
start = "earliest"
subscribers = {{ one = "127.0.0.1:{free_port()}" }}
""")
    return load(file)


@pytest.mark.allow_blocking("begins an archive, in a thread of its own")
async def test_it_runs_until_it_is_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import aiohttp

    warned: list[str] = []
    monkeypatch.setattr(run, "warn_interpreted", warned.append)
    port = free_port()
    working = asyncio.create_task(
        run._until_stopped(config(tmp_path), "shop", str(tmp_path / "shop.toml"), f"127.0.0.1:{port}", False)
    )
    async with aiohttp.ClientSession() as session:
        while True:
            assert not working.done(), working.exception()
            try:
                async with session.get(f"http://127.0.0.1:{port}/metrics") as answer:
                    text = await answer.text()
                    break
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.02)
    assert 'wormhole_subscriber_streams{application="archive",subscriber="one"} 0' in text
    assert warned == ["spark_replay"]
    os.kill(os.getpid(), signal.SIGTERM)
    await working
    assert open_store(str(tmp_path / "archive"), "shop").shards() == []


def test_a_dataset_without_an_archive(tmp_path: Path) -> None:
    found = config(tmp_path)
    found = found.model_copy(update={"datasets": {"shop": found.datasets["shop"].model_copy(update={"archive": None})}})
    with pytest.raises(ConfigError, match="dataset shop has no archive"):
        run.run(found, "shop", str(tmp_path / "shop.toml"))
