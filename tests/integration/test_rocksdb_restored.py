"""A RocksDB that is restored from an older copy and opened several times: its publisher runs, reports the loss, and
has a way on."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from subscriber_sdk import DataLoss, LossDecision, Subscriber, SubscriberOptions, Update, serve
from tests.support.eventually import eventually, patience
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from tests.support.rocks_writer import RocksWriter
from wormholectl.app import app as commands


class App(Subscriber):
    """Remembers what it was given and which losses it was asked about."""

    def __init__(self) -> None:
        self.keys: list[object] = []
        self.losses: list[DataLoss] = []

    async def on_update(self, update: Update) -> None:
        self.keys.append(update.key[0])

    async def on_data_loss(self, loss: DataLoss) -> LossDecision:
        self.losses.append(loss)
        return LossDecision.HALT


class World:
    """A database with a backup, a configuration, and a publisher in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.backup, self.port = folder / "backup", free_port()
        self.writer = RocksWriter(folder / "store")
        application = f"""[applications.app]
dataset = "shop"
start = "earliest"
subscribers = {{ s1 = "127.0.0.1:{self.port}" }}"""
        self.publisher = PublisherProcess(folder, f'source = "rocksdb://{self.writer.path}"', application)
        self.options: SubscriberOptions = {
            "listen": f"127.0.0.1:{self.port}",
            "coordinator": str(self.publisher.config),
        }

    def back_up(self) -> None:
        self.writer.close()
        shutil.copytree(self.writer.path, self.backup)
        self.writer.open()

    def restore(self, reopened: int) -> None:
        self.writer.close()
        shutil.rmtree(self.writer.path)
        shutil.copytree(self.backup, self.writer.path)
        for _ in range(reopened):
            self.writer.open()
            self.writer.close()
        self.writer.open()

    async def command(self, *arguments: str) -> Result:
        return await asyncio.to_thread(CliRunner().invoke, commands, [*arguments, "-c", str(self.publisher.config)])

    async def accept_loss(self) -> None:
        """As the runbook says, once the application has declined the loss."""
        async with patience():
            while (done := await self.command("flows", "accept-loss", "app/db1", "--yes")).exit_code:
                assert "no loss of log" in done.output, done.output
                await asyncio.sleep(0.05)

    def close(self) -> None:
        self.publisher.kill()
        self.writer.exit()


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


@pytest.mark.allow_blocking("works with files and processes between the waits")
async def test_a_restored_database_is_a_loss_that_can_be_accepted(world: World) -> None:
    app = App()
    world.writer.put(b"a", b"1")
    world.back_up()
    async with serve(app, application="app", **world.options):
        world.publisher.start()
        for number in range(50):
            world.writer.put(b"b%d" % number, b"2")
        await eventually(lambda: b"b49" in app.keys, "all before the disaster")
        for again in range(1 if "WORMHOLE_ROUNDS" not in os.environ else 3):
            world.publisher.stop()
            world.restore(reopened=9)
            world.writer.put(b"c%d" % again, b"3")
            losses = len(app.losses)
            world.publisher.start()
            await eventually(lambda: len(app.losses) > losses, "the loss")  # noqa: B023
            assert app.losses[-1].kind.value == "diverged"
            assert world.publisher.serves()
            await world.accept_loss()
            await eventually(lambda: b"c%d" % again in app.keys, "what is written since")  # noqa: B023


@pytest.mark.allow_blocking("works with files and processes between the waits")
async def test_a_wiped_database_is_waited_for_by_a_publisher_that_answers(world: World) -> None:
    app = App()
    async with serve(app, application="app", **world.options):
        world.publisher.start()
        world.writer.put(b"a", b"1")
        await eventually(lambda: b"a" in app.keys, "the first update")
        world.publisher.stop()
        world.writer.close()
        for file in world.writer.path.iterdir():
            file.unlink()
        (world.writer.path / "README").write_text("soon")  # no database: without flows that would be a wrong request
        world.publisher.start()
        await eventually(world.publisher.serves, "it serves")
        assert (await world.command("publishers")).exit_code == 0
        world.writer.open()
        world.writer.put(b"b", b"2")
        await eventually(lambda: app.losses, "the loss")
        await world.accept_loss()
        await eventually(lambda: b"b" in app.keys, "what the new database writes")
