"""``kill -9`` of publisher and subscribers while updates are being parked: each is handled in the order of its key,
or parked; none is lost."""

from __future__ import annotations

import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from publisher.stores.markers import LocalMarkerStore
from tests.support.eventually import until
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from tests.support.rocks_writer import RocksWriter
from tests.support.seed import SEED
from tests.system.harness.logs import Received
from tests.system.harness.processes import Process
from tests.system.harness.programs import SubscriberProcess
from tests.system.harness.truth import digest
from wormhole.ports.dead_letters import Parcel, open_parcel

KEYS = [f"k{number}" for number in range(6)]
FLOW = ("cache", "db1")


class Scene:
    """A RocksDB, its publisher, two subscribers of one flow."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state" / "shop" / "main" / "db1"
        self.refuse = folder / "refuse"
        self.written: dict[str, list[int]] = {key: [] for key in KEYS}
        self.writer = RocksWriter(folder / "store")
        ports = {name: free_port() for name in ("s1", "s2")}
        application = f"""[applications.cache]
dataset = "shop"
start = "earliest"
on_failure = "park"
retry = {{ attempts = 2, first_wait = "5ms", longest_wait = "5ms" }}
[applications.cache.subscribers]
{chr(10).join(f'{name} = "127.0.0.1:{port}"' for name, port in ports.items())}"""
        settings = 'heartbeat = "500ms"\ngrace_period = "300ms"\nhandler_timeout = "5s"'
        source = f'source = "rocksdb://{folder / "store"}"'
        self.publisher = PublisherProcess(folder, source, application, publisher=settings)
        self.subscribers = {}
        for name in ports:
            options = {"id": name, "coordinator": str(self.publisher.config)}
            given = {"refuse": str(self.refuse), "options": options}
            self.subscribers[name] = SubscriberProcess(name, "cache", folder, given)

    def processes(self) -> list[Process]:
        return [self.publisher, *self.subscribers.values()]

    def write(self, key: str) -> None:
        number = sum(map(len, self.written.values()))
        self.writer.put(key.encode(), b"%d" % number)
        self.written[key].append(number)

    def handled(self) -> dict[str, list[int]]:
        """By key: numbers in the order in which they were handled."""
        found: dict[str, list[int]] = {key: [] for key in KEYS}
        numbers = {digest(b"%d" % number): number for some in self.written.values() for number in some}
        entries = [entry for one in self.subscribers.values() for entry in one.entries() if isinstance(entry, Received)]
        for entry in sorted(entries, key=lambda entry: entry.at):
            found[bytes.fromhex(entry.content.key).decode()].append(numbers[entry.content.value])
        return found

    def parked(self) -> set[int]:
        """Numbers of what is parked, as another process sees the store."""
        path = self.state / "markers.sqlite"
        if not path.exists():
            return set()
        with closing(sqlite3.connect(path)) as database:
            try:
                rows = database.execute("SELECT table_schema, body FROM dead_letters").fetchall()
            except sqlite3.OperationalError:  # nothing was ever parked
                return set()
        return {_number(Parcel(*row)) for row in rows}

    def settled(self) -> bool:
        handled = {number for numbers in self.handled().values() for number in numbers}
        return handled | self.parked() >= {number for numbers in self.written.values() for number in numbers}

    def wait(self, what: str) -> None:
        def so() -> bool:
            for process in self.processes():
                assert not process.ended, process.tail()
            return self.settled()

        until(so, lambda: "\n".join([what, *(p.tail() for p in self.processes())]))

    def check(self) -> None:
        """In the order of each key, and nothing of a key behind an update of it that is parked and was never
        handled."""
        parked = self.parked()
        for key, numbers in self.handled().items():
            first = list(dict.fromkeys(numbers))
            assert first == sorted(first), f"{key} was handled in another order: {numbers}"
            held = [number for number in self.written[key] if number in parked and number not in first]
            assert not held or not first or first[-1] < held[0], (
                f"{key}: {first[-1]} came behind {held[0]}, which is parked"
            )


def _number(parcel: Parcel) -> int:
    after = open_parcel(parcel).after
    assert after is not None
    value = after["value"]
    assert isinstance(value, bytes)
    return int(value)


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    try:
        yield scene
    finally:
        for process in scene.processes():
            process.kill()
        scene.writer.kill()


def test_nothing_is_lost_while_updates_are_parked(scene: Scene) -> None:
    chance = random.Random(SEED)
    print(f"seed {SEED}")
    scene.refuse.write_text("k0 k1")
    for process in scene.processes():
        process.start()
    victims = [scene.publisher, scene.subscribers["s1"], scene.publisher, scene.subscribers["s2"]]
    if "WORMHOLE_ROUNDS" not in os.environ:
        victims = victims[:2]
    for victim in victims:
        for _ in range(chance.randrange(20, 60)):
            scene.write(chance.choice(KEYS))
        time.sleep(chance.uniform(0.0, 0.4))
        victim.kill()
        for _ in range(20):
            scene.write(chance.choice(KEYS))
        victim.start()
        scene.wait("handled or parked")
        scene.check()
    assert len(scene.parked()) > 20, "what the test is about did not happen"
    # An operator retries when the handler was mended.
    assert scene.publisher.stop() == 0, scene.publisher.tail()
    with closing(LocalMarkerStore(scene.state)) as store:
        store.open()
        letters = store.dead_letters()
        letters.retry(FLOW, [letter.id for letter in letters.load(FLOW)], anyone=True)
    scene.refuse.write_text("")
    scene.publisher.start()
    time.sleep(chance.uniform(0.3, 1.5))
    scene.publisher.kill()
    scene.write("k0")
    scene.publisher.start()
    until(lambda: not scene.parked(), scene.publisher.tail)
    scene.wait("handled")
    scene.check()
    assert {key: numbers[-1:] for key, numbers in scene.handled().items()} == {
        key: numbers[-1:] for key, numbers in scene.written.items()
    }
