"""Carries the story out: starts the processes, kills two of them, waits for what has to happen, ends everything."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import AsyncGenerator, Generator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from examples.demo.configuration import configuration
from examples.demo.datastore import open_datastore
from examples.demo.processes import DemoError, Process
from examples.demo.scene import COMMITS, LOG, SHARDS, SUBSCRIBERS, NotInTimeError, Scene
from examples.demo.story import Story, short_shards
from examples.demo.watch import Watch
from wormhole.config import load
from wormhole.coordination.connect import connect
from wormhole.coordination.embedded_zookeeper import EmbeddedZooKeeper
from wormhole.host.ready_file import ready_path
from wormhole.model.errors import WormholeError
from wormhole.wire.v1 import admin_pb2

__all__ = ["SLOW", "Facts", "play"]

SLOW: Final = "index"
_RATE: Final = 500  # transactions a second, two updates each on average
_SLOW_MS: Final = 40.0  # for each update of a shard: a fifth of the rate at which they come
_PROGRESS_S: Final = 3.0  # at least; a longer run prints its progress as often as a short one
_START_S: Final = 80.0  # a few seconds for eight processes; on a machine with much else to do many more
_EVENT_S: Final = 60.0
_STOP_S: Final = 10.0
_GATHER_S: Final = 0.4  # notices of one move come one by one
# Where in the run things happen, as parts of --seconds; the next thing also waits until the one before is over.
_KILL_SUBSCRIBER, _HURRY, _KILL_PUBLISHER = 0.2, 0.45, 0.65


@dataclass(slots=True)
class Facts:
    """What the check needs to know of a run beside the journals and the store. ``disturbed``: see :mod:`.checker`."""

    datastore: str
    seed: int
    kills: int
    caravans_max: int
    disturbed: list[tuple[int, int]]

    def write(self, folder: Path) -> None:
        """Keep them with the journals."""
        (folder / "run.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Facts:
        """Read a run that was kept. Raises ``OSError``, ``ValueError`` or ``TypeError`` for anything else."""
        facts = cls(**json.loads((folder / "run.json").read_text()))
        facts.disturbed = [(begin, end) for begin, end in facts.disturbed]
        return facts


@contextlib.asynccontextmanager
async def play(
    datastore: str, seed: int, seconds: float, keep: bool, story: Story
) -> AsyncGenerator[tuple[Path, Facts], None]:
    """Play the whole story; inside the block everything has ended, and the folder is still there.

    Raises :class:`~wormhole.model.errors.WormholeError` when something cannot be started or does not happen in time.
    """
    folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix="wormhole-demo-"))
    try:
        director = _Director(datastore, seed, seconds, folder, "" if keep else str(folder), story)
        try:
            facts = await director.play()
        finally:
            await director.end()
            if keep:
                story.end(f"kept in {folder}")
        facts.write(folder)
        yield folder, facts
    finally:
        if not keep:
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


class _Director:
    def __init__(self, datastore: str, seed: int, seconds: float, folder: Path, remove: str, story: Story) -> None:
        self._datastore = open_datastore(datastore, folder, remove)
        self._seed = seed
        self._seconds = seconds
        self._folder = folder
        self._remove = remove
        self._story = story
        self._chance = random.Random(f"director {seed}")
        self._scene = Scene(folder, self._told)
        self._processes: dict[str, Process] = {}
        self._may_end: set[int] = set()  # process ids
        self._notices: dict[tuple[str, str, str], list[str]] = {}
        self._zookeeper = EmbeddedZooKeeper(private=True)
        self._facts = Facts(datastore, seed, 0, 0, [])
        self._left: frozenset[str] = frozenset()  # flows of the slow application that are not with the lead
        self._settled = False  # whether the publisher has acknowledgements of everything, and nothing comes again
        self._fell = False  # whether there ever were any: on a busy machine they are back before anybody looks
        self._began_ns = 0
        self._ending = False
        self._group: asyncio.TaskGroup

    # -- the whole

    async def play(self) -> Facts:
        """Everything from the first process to the last update received."""
        try:
            async with asyncio.TaskGroup() as self._group:
                await self._play()
                raise _Over
        except* _Over:
            pass
        except* WormholeError as group:
            # What ended several tasks together has one cause: the first.
            raise group.exceptions[0] from None
        return self._facts

    async def _play(self) -> None:
        seconds = self._seconds
        fifo = self._folder / "start"
        os.mkfifo(fifo, 0o600)
        await asyncio.gather(asyncio.to_thread(self._zookeeper.start), asyncio.to_thread(self._datastore.start))
        store = [self._facts.datastore, self._datastore.place]
        await self._start(
            "writer", "examples.demo.writer", *store, self._folder / COMMITS, fifo, self._seed, seconds, _RATE
        )
        await self._scene.until(lambda: "writer" in self._scene.ready, _START_S, "the store's opening")
        self._say(f"embedded ZooKeeper at {self._zookeeper.hosts}, the coordination of all processes")
        self._say(f"store: {self._datastore.told} (writer: pid {self._pid('writer')})")
        toml = self._folder / "shop.toml"
        toml.write_text(configuration(self._zookeeper.settings, self._datastore.source))
        config = await asyncio.to_thread(load, toml)
        coordinator = connect(config)
        await coordinator.start()
        try:
            await self._start_monitor()
            await self._apply()
            watch = Watch(ready_path(config.publisher.state_dir, "shop", "main", LOG), self._seen)
            background = [self._group.create_task(watch.run()), self._group.create_task(self._read_journals())]
            await asyncio.gather(*(self._start_subscriber(name) for name in SUBSCRIBERS))
            await self._scene.until(lambda: watch.pid != 0, _START_S, "the start of a publisher by the monitor")
            (monitor,) = await coordinator.monitors()
            # Notices that are being gathered come after it, since it came before them.
            self._story.say(
                f"monitor (pid {monitor.pid}) starts what the configuration says; its page: {monitor.address}"
            )
            self._story.say(f"publisher of shop/main/{LOG}: pid {watch.pid}; " + self._pids_of_subscribers())
            await self._scene.until(self._scene.all_assigned, _START_S, "the assignment of all shards")
            with self._writing(fifo):
                await self._fall_and_rise(watch)
            await self._drain()
            self._facts.caravans_max = watch.caravans_most
            for task in background:
                task.cancel()
        finally:
            await coordinator.stop()

    async def end(self) -> None:
        """End every process; what the journals do not hold by now does not count."""
        self._ending = True
        self._may_end.update(process.pid for process in self._processes.values())
        await self._end_monitor()
        await asyncio.gather(*(process.end() for process in self._processes.values()))
        await asyncio.to_thread(self._zookeeper.close)
        await asyncio.to_thread(self._datastore.close)

    # -- the acts

    @contextlib.contextmanager
    def _writing(self, fifo: Path) -> Generator[None, None, None]:
        """The writer writes; its store is open until the block ends, or longer."""
        self._began_ns = time.monotonic_ns()
        handle = os.open(fifo, os.O_RDWR)  # both: opening for writing alone would wait for the reader
        try:
            os.write(handle, f"{self._began_ns}\n".encode())
            self._say(
                f"writing about {_RATE * 2:,} updates/s for {self._seconds:g} s; "
                f"{SLOW}-1 needs {_SLOW_MS:g} ms for each update: too slow"
            )
            yield
        finally:
            os.close(handle)

    async def _fall_and_rise(self, watch: Watch) -> None:
        victim = self._chance.choice([name for name, mine in SUBSCRIBERS.items() if mine == "cache"])
        await self._at(_KILL_SUBSCRIBER)
        await self._kill_subscriber(victim)
        await self._scene.until(
            lambda: any(owner == victim for owner, _ in self._scene.owners.values()) and self._scene.all_assigned(),
            _EVENT_S,
            f"the return of shards to {victim}",
        )
        await self._at(_HURRY)
        await self._scene.until(lambda: self._fell, _EVENT_S, f"a caravan of its own for {SLOW}")
        behind = self._scene.behind(SLOW)
        self._process(f"{SLOW}-1").signal(signal.SIGUSR1)
        self._say(f"{SLOW}-1 is slow no longer; it is {behind:,} updates behind")
        await self._scene.until(lambda: not self._left, _EVENT_S, f"{SLOW}'s catching up")
        await self._at(_KILL_PUBLISHER)
        await self._log_is_pinned()
        await self._kill_publisher(watch)

    async def _kill_subscriber(self, victim: str) -> None:
        process, scene = self._process(victim), self._scene
        self._kill(process)
        killed_ns = time.monotonic_ns()
        self._say(f"{victim} killed with kill -9 (pid {process.pid}); it had {short_shards(scene.gone(victim))}")
        await scene.until(lambda: scene.assigned("cache") == SHARDS, _EVENT_S, f"the move of {victim}'s shards")
        await self._recovered(killed_ns, "cache", f"{victim}'s shards have moved")
        await self._start_subscriber(victim)
        self._say(f"{victim} started again (pid {self._pid(victim)})")

    async def _log_is_pinned(self) -> None:
        """Wait until a store may delete its log once more without a publisher, however long that one takes to come
        again.

        Nobody pins a log that begins when no publisher runs. So at most one chore may be left, since what that deletes
        began before; and the publisher has read, and thus pinned, what is written now.
        """
        scene = self._scene
        await scene.until(lambda: scene.chores_left in (0, 1), self._seconds + _EVENT_S, "the writer's chores")
        await self._received("cache", "delivery to cache")

    async def _kill_publisher(self, watch: Watch) -> None:
        scene, pid = self._scene, watch.pid
        before = dict(scene.owners)
        os.kill(pid, signal.SIGKILL)
        self._facts.kills += 1
        killed_ns = time.monotonic_ns()
        self._say(f"publisher killed with kill -9 (pid {pid}); only the monitor starts another")
        await scene.until(lambda: watch.pid != pid, _EVENT_S, "the monitor's start of another publisher")
        self._say(f"publisher started again by the monitor (pid {watch.pid})")
        await scene.until(
            lambda: all(key in scene.owners and scene.owners[key][1] > epoch for key, (_, epoch) in before.items()),
            _EVENT_S,
            "the new publisher's assignment of all shards",
        )
        await self._recovered(killed_ns, "cache", "the publisher went on from its datamarkers")

    async def _recovered(self, killed_ns: int, application: str, what: str) -> None:
        """Wait until all that was committed by now is received; that ends the disturbance."""
        await self._received(application, f"delivery to {application} after a kill")
        now = time.monotonic_ns()
        self._facts.disturbed.append((killed_ns, now))
        self._say(f"{what}: {application} has everything again {(now - killed_ns) / 1e9:.1f} s after the kill")

    async def _received(self, application: str, what: str) -> None:
        """Wait until the application has all that was committed by now."""
        record = self._scene.record
        record.read()
        committed = len(record.commits)
        await self._scene.until(lambda: len(record.distinct[application]) >= committed, _EVENT_S, what)

    async def _drain(self) -> None:
        scene = self._scene
        await scene.until(lambda: scene.finished is not None, self._seconds + _EVENT_S, "the end of writing")
        self._say(f"the writer has ended after {scene.finished:,} updates; waiting until all is received")
        try:
            await scene.until(
                lambda: (
                    len(scene.record.commits) == scene.finished
                    and not any(scene.behind(name) for name in scene.record.distinct)
                    and self._settled  # amid a repeat an application holds what was, not what is
                ),
                _EVENT_S,
                "draining",
            )
        except NotInTimeError:
            self._say(f"after {_EVENT_S:g} s something is still missing: the check will name it")
        else:
            self._say("every application has received every update")
        await scene.until(lambda: scene.closed, _EVENT_S, "the store's closing")

    # -- processes

    async def _start(self, name: str, module: str, *arguments: object) -> Process:
        words = ["-m", module, *map(str, arguments)]
        process = Process(name, words, self._folder / f"{name}.log", self._scene.event, self._remove)
        self._processes[name] = process
        await process.start()
        self._group.create_task(self._mind(process))
        return process

    async def _apply(self) -> None:
        process = await self._start("apply", "wormholectl", "config", "apply", self._folder / "shop.toml", "--yes")
        self._may_end.add(process.pid)
        if await process.finish():
            raise DemoError(f"the configuration was not applied: {process.last_words()}")

    async def _start_monitor(self) -> None:
        await self._start("monitor", "wormholectl", "monitor", "run", "--config", self._folder / "shop.toml")

    async def _end_monitor(self) -> None:
        """What it started ends with it. Told a second time it kills what does not end."""
        if (process := self._processes.get("monitor")) is None:
            return
        for _ in range(2):
            if not process.ended.is_set():
                process.signal(signal.SIGTERM)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_STOP_S):
                        await process.ended.wait()

    async def _start_subscriber(self, name: str) -> None:
        application = SUBSCRIBERS[name]
        journal = self._folder / f"received-{name}.tsv"
        slow = _SLOW_MS if application == SLOW else 0
        config = self._folder / "shop.toml"
        await self._start(name, "examples.demo.receiver", application, name, config, journal, slow)

    async def _mind(self, process: Process) -> None:
        """A process that ends without a request ends the demo."""
        await process.ended.wait()
        told = process.pid in self._may_end or (process.name == "writer" and self._scene.finished is not None)
        if not told:
            raise DemoError(
                f"{process.name} (pid {process.pid}) ended by itself; its last words: {process.last_words()}",
                hint="repeat with --keep and read the logs in the folder that is then kept",
            )

    def _kill(self, process: Process) -> None:
        self._may_end.add(process.pid)
        self._facts.kills += 1
        process.kill()

    def _process(self, name: str) -> Process:
        return self._processes[name]

    def _pid(self, name: str) -> int:
        return self._processes[name].pid

    def _pids_of_subscribers(self) -> str:
        return ", ".join(f"{name} {self._pid(name)}" for name in SUBSCRIBERS)

    # -- what is seen

    async def _at(self, part: float) -> None:
        """Wait for a moment of the run, a little earlier or later by the seed."""
        part += self._chance.uniform(-0.03, 0.03)
        due = self._began_ns / 1e9 + part * self._seconds
        await asyncio.sleep(max(0.0, due - time.monotonic()))

    async def _read_journals(self) -> None:
        told = time.monotonic()
        every = max(_PROGRESS_S, self._seconds / 6)
        while True:
            await asyncio.sleep(0.1)
            if self._scene.record.read():
                self._scene.changed()
            if self._began_ns and time.monotonic() - told >= every:
                told = time.monotonic()
                record = self._scene.record
                received = ", ".join(f"{name} {len(ids):,}" for name, ids in record.distinct.items())
                self._story.progress(f"  committed {len(record.commits):,} updates; received: {received}")

    def _seen(self, status: admin_pb2.PublisherStatus) -> None:
        """The publisher answered: is everything acknowledged; did flows of the slow application leave the lead, or come
        back to it?
        """
        self._settled = len(status.flows) == SHARDS * len(self._scene.record.distinct) and all(
            flow.HasField("lag_transactions") and not flow.lag_transactions and not flow.in_flight
            for flow in status.flows
        )
        lead = {caravan.number for caravan in status.caravans if caravan.lead}
        flows = [flow for flow in status.flows if flow.flow.startswith(f"{SLOW}/")]
        left = frozenset(flow.flow for flow in flows if flow.caravan not in lead)
        own = sorted({flow.caravan for flow in flows if flow.caravan and flow.caravan not in lead})
        if own and not self._left:
            self._left, self._fell = left, True
            carry = f"caravan {own[0]} carries" if len(own) == 1 else f"caravans {', '.join(map(str, own))} carry"
            where = "goes on from older datamarkers" if self._facts.kills > 1 else "is behind the change buffer"
            self._story.say(f"{SLOW} {where}: {carry} its flows, the lead goes on")
        elif self._left and flows and not left:
            self._left = left
            self._story.say(f"{SLOW} has caught up: its flows travel with the lead caravan again")
        elif self._left:
            self._left = left or self._left
        self._scene.changed()

    def _say(self, text: str) -> None:
        self._tell_notices()  # they came before
        self._story.say(text)

    def _told(self, process: str, event: Mapping[str, Any]) -> None:
        match event["event"]:
            case "notice":
                key = (process, str(event["kind"]), str(event["cause"]))
                if not self._notices:
                    asyncio.get_running_loop().call_later(_GATHER_S, self._tell_notices)
                self._notices.setdefault(key, []).append(str(event["shard"]))
            case "chore":
                self._story.say(str(event["what"]))
            case _:
                pass

    def _tell_notices(self) -> None:
        """Notices that came together are one line for each subscriber."""
        notices, self._notices = self._notices, {}
        if self._ending:
            return  # the end of the demo itself
        for (subscriber, kind, cause), shards in notices.items():
            self._story.say(f"{subscriber}: {kind} {short_shards(shards)}{f' ({cause})' if cause else ''}")


class _Over(Exception):  # noqa: N818 - the story is over
    """Ends the group's tasks."""
