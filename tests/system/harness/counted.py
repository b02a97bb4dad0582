"""A store whose writes are transfers between accounts, its publisher, and an application that counts them in a target;
what the target must hold, and the comparison."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from tests.support.eventually import until
from tests.support.ports import free_port
from tests.support.publisher_process import PublisherProcess
from tests.support.rocks_writer import RocksWriter
from tests.system.harness.processes import Process
from tests.system.harness.targets import ACCOUNTS, Entry, Target
from wormhole.wire.v1 import admin_pb2

__all__ = ["APPLICATION", "Counted"]

APPLICATION: Final = "totals"
_SETTINGS: Final = 'heartbeat = "300ms"\ngrace_period = "300ms"\nhandler_timeout = "3s"'
_OFTEN: Final = 'retry = { attempts = 200, first_wait = "10ms", longest_wait = "200ms" }'
_SHOWN: Final = 5


class Counted:
    """Nothing runs at first. ``members``: how many subscribers there are. ``policies``: of the application, in TOML.
    ``marker_interval``: how often effects are committed while there are updates.

    :attr:`expected` is what the source has committed, and what an operator has had delivered again or passed over.
    """

    def __init__(
        self, folder: Path, target: Target, chance: random.Random, *, handling: str = "transactional",
        members: int = 1, policies: str = _OFTEN, marker_interval: str = "1s",
    ) -> None:  # fmt: skip
        self.target, self.chance = target, chance
        self.expected: Counter[Entry] = Counter()
        self.number = 0
        """The last transaction's."""
        self.tricks = folder / "tricks"
        self.tricks.mkdir()
        target.empty()
        self.writer = RocksWriter(folder / "store")
        names = [f"s{number}" for number in range(1, members + 1)]
        listed = ", ".join(f'{name} = "127.0.0.1:{free_port()}"' for name in names)
        application = f"""[applications.{APPLICATION}]
dataset = "shop"
start = "earliest"
marker_interval = "{marker_interval}"
{policies}
subscribers = {{ {listed} }}"""
        source = f'source = "rocksdb://{folder / "store"}"'
        self.publisher = PublisherProcess(folder, source, application, publisher=_SETTINGS)
        self.subscribers = [self._subscriber(folder, name, handling) for name in names]

    def _subscriber(self, folder: Path, name: str, handling: str) -> Process:
        given = {
            "application": APPLICATION,
            "handling": handling,
            "store": self.target.store,
            "url": self.target.url,
            "tricks": str(self.tricks),
            "options": {"id": name, "coordinator": str(self.publisher.config), "handler_timeout": 3.0},
        }
        return Process(name, ["-m", "tests.system.harness.counting", json.dumps(given)], folder)

    @property
    def subscriber(self) -> Process:
        """The first one."""
        return self.subscribers[0]

    @property
    def processes(self) -> tuple[Process, ...]:
        """All of ours."""
        return (self.publisher, *self.subscribers)

    def start(self) -> None:
        """Start everything, and have one transaction delivered."""
        for process in self.subscribers:
            process.start()
        for process in self.subscribers:  # a publisher that does not reach one waits for seconds before it tries again
            process.await_output("listens at")
        self.publisher.start()
        self.transfer()
        self.check()

    # -- the source

    def transfer(self, count: int = 1, source: str = "", target: str = "") -> list[Entry]:
        """Commit so many transfers; returns their entries. Without names the accounts are random ones."""
        entries: list[Entry] = []
        for _ in range(count):
            self.number += 1
            names = (source, target) if source else self.chance.sample(ACCOUNTS, 2)
            amount = self.chance.randint(1, 1_000)
            entries += [(self.number, names[0], amount), (self.number, names[1], -amount)]
            self.writer.write([("put", "default", name.encode(), b"%d %d" % (n, x)) for n, name, x in entries[-2:]])
        self.expected.update(entries)
        return entries

    def passed_over(self, entries: Iterable[Entry]) -> None:
        """An operator let the application go on behind these."""
        self.expected.subtract(entries)

    def again(self, after: int) -> None:
        """An operator had everything behind the transaction ``after`` delivered again."""
        self.expected.update({entry: count for entry, count in self.expected.items() if entry[0] > after})

    # -- what the handler does

    def trick(self, name: str, text: str = "0") -> None:
        """Have the handler do what ``name`` says; see :mod:`.counting`."""
        (self.tricks / "entered").unlink(missing_ok=True)
        draft = self.tricks / "draft"
        draft.write_text(text)
        draft.rename(self.tricks / name)

    def untrick(self, name: str) -> None:
        """And no longer."""
        (self.tricks / name).unlink()

    def entered(self, process: Process) -> None:
        """Until the process is in the middle of a transaction, at the gate."""

        def there() -> bool:
            path = self.tricks / "entered"
            return path.exists() and path.read_text() == str(process.pid)

        until(there, lambda: self.story("did not get to the gate"))
        (self.tricks / "entered").unlink()

    def done(self, name: str) -> None:
        """Until the handler did it."""
        until(lambda: not (self.tricks / name).exists(), lambda: self.story(f"did not {name}"))

    # -- what is there

    def flow(self) -> admin_pb2.FlowStatus:
        """What the publisher reports of it; empty while it does not answer."""
        return self.publisher.flow(APPLICATION) or admin_pb2.FlowStatus()

    def halted(self, cause: str) -> None:
        """Until the flow is halted for a cause that contains the text."""
        until(lambda: self.flow().halted_at or cause in self.flow().cause, lambda: self.story("not halted"))
        assert cause in self.flow().cause, self.flow().cause

    def check(self) -> None:
        """Wait until the last transaction is there, and then compare everything."""
        last = [entry for entry in self.expected if entry[0] == self.number]

        def arrived() -> bool:
            ended = [process.name for process in self.processes if process.ended]
            assert not ended, self.story(f"ended by itself: {ended}")
            there = self.target.ledger()
            return all(there[entry] >= self.expected[entry] for entry in last)

        until(arrived, lambda: self.story(f"transaction {self.number} did not come"))
        self.compare()

    def compare(self) -> None:
        """Raise ``AssertionError`` unless the target holds each effect once, and nothing else."""
        ledger, counters, wanted = self.target.ledger(), self.target.counters(), +self.expected
        more, fewer = ledger - wanted, wanted - ledger
        assert not more, f"{more.total()} too often: {sorted(more)[:_SHOWN]} of {sorted(ledger)[-_SHOWN:]}"
        assert not fewer, f"{fewer.total()} too seldom: {sorted(fewer)[:_SHOWN]}"
        totals = dict.fromkeys(ACCOUNTS, 0)
        for (_, account, amount), count in wanted.items():
            totals[account] += amount * count
        assert counters == totals, "the counters are not what the ledger says"
        assert sum(counters.values()) == 0

    def finish(self) -> None:
        """Stop everything in order, and compare once more: nothing came late."""
        for process in reversed(self.processes):
            assert process.stop() == 0, process.tail()
        self.compare()

    def story(self, what: str) -> str:
        """For the message of a failure."""
        return "\n".join([what, str(self.flow()), *(process.tail() for process in self.processes)])

    def close(self) -> None:
        """Kill what runs."""
        for process in self.processes:
            process.kill()
        self.writer.exit()
