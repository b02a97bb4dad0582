"""The state of a run of the demo: which subscriber has which shard, what was committed, what each application received.

The state comes from the events of the processes, and from their journals, which are read while they grow. The demo
waits here for a state that it needs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from examples.demo.journal import Commit, Receipt, Tail
from examples.demo.processes import DemoError

__all__ = ["COMMITS", "LOG", "SHARDS", "SUBSCRIBERS", "NotInTimeError", "Record", "Scene"]

LOG = "db1"
SHARDS = 8
SUBSCRIBERS = {"cache-1": "cache", "cache-2": "cache", "index-1": "index"}
COMMITS = "committed.tsv"


class NotInTimeError(DemoError):
    """The awaited state was not reached in time."""


class Record:
    """The journals of one run, read as far as they are written."""

    def __init__(self, folder: Path) -> None:
        self.commits: list[Commit] = []
        self.receipts: dict[str, list[Receipt]] = {name: [] for name in SUBSCRIBERS}
        self.distinct: dict[str, set[str]] = {application: set() for application in SUBSCRIBERS.values()}
        """Update ids by application: what it received at least once."""
        self._commit_tail = Tail(folder / COMMITS)
        self._tails = {name: Tail(folder / f"received-{name}.tsv") for name in SUBSCRIBERS}

    def read(self) -> bool:
        """Read what was written since the last call. Returns whether there was anything."""
        before = len(self.commits) + sum(map(len, self.receipts.values()))
        for name, tail in self._tails.items():
            new = [Receipt.parse(line) for line in tail.lines()]
            self.receipts[name] += new
            self.distinct[SUBSCRIBERS[name]].update(receipt.update_id for receipt in new)
        # After the receipts, so that less was received than committed, not more.
        self.commits += map(Commit.parse, self._commit_tail.lines())
        return before != len(self.commits) + sum(map(len, self.receipts.values()))

    def of(self, application: str) -> dict[str, Sequence[Receipt]]:
        """Receipts of one application, by subscriber."""
        return {name: self.receipts[name] for name, mine in SUBSCRIBERS.items() if mine == application}


class Scene:
    """``told`` is called for each event of a process, on the event loop."""

    def __init__(self, folder: Path, told: Callable[[str, Mapping[str, Any]], None]) -> None:
        self.record = Record(folder)
        self.owners: dict[tuple[str, str], tuple[str, int]] = {}
        """(application, shard) to (subscriber, epoch), as the subscribers report it."""
        self.finished: int | None = None
        """Updates that the writer committed in all, once it reported the number."""
        self.chores_left: int | None = None
        """The number of tasks that the writer still has besides writing, once it has done one."""
        self.closed = False
        """Whether the writer has closed its store."""
        self.ready: set[str] = set()
        self._loss = ""
        self._told = told
        self._changed = asyncio.Event()

    def event(self, process: str, event: Mapping[str, Any]) -> None:
        """A process reported ``event``."""
        match event["event"]:
            case "ready":
                self.ready.add(process)
            case "finished":
                self.finished = int(event["updates"])
            case "chore":
                self.chores_left = int(event["left"])
            case "closed":
                self.closed = True
            case "loss":
                self._loss = self._loss or f"{process} received a data loss: {event['message']}"
            case "notice":
                self._notice(process, event)
            case _:
                pass
        self._told(process, event)
        self.changed()

    def _notice(self, subscriber: str, event: Mapping[str, Any]) -> None:
        key = (SUBSCRIBERS[subscriber], str(event["shard"]))
        now = (subscriber, int(event["epoch"]))
        if event["kind"] == "assigned":
            self.owners[key] = now
        elif event["kind"] == "revoked" and self.owners.get(key) == now:
            del self.owners[key]

    def gone(self, subscriber: str) -> list[str]:
        """The subscriber was killed and reports nothing any more. Returns the shards that it had."""
        had = [key for key, (name, _) in self.owners.items() if name == subscriber]
        for key in had:
            del self.owners[key]
        self.ready.discard(subscriber)
        return [shard for _, shard in had]

    def assigned(self, application: str) -> int:
        """How many shards of the application are at a subscriber."""
        return sum(key[0] == application for key in self.owners)

    def all_assigned(self) -> bool:
        """Whether every shard of every application is at a subscriber."""
        return len(self.owners) == SHARDS * len(self.record.distinct)

    def behind(self, application: str) -> int:
        """Committed updates that the application did not receive yet, as far as the journals were read."""
        return max(0, len(self.record.commits) - len(self.record.distinct[application]))

    def changed(self) -> None:
        """The state has changed: :meth:`until` checks its condition again."""
        self._changed.set()

    async def until(self, what: Callable[[], bool], seconds: float, why: str) -> None:
        """Wait until ``what`` holds.

        Raises :class:`NotInTimeError` with ``why`` after ``seconds``, :class:`DemoError` at once if data is lost.
        """
        try:
            async with asyncio.timeout(seconds):
                while not what():
                    if self._loss:
                        raise DemoError(
                            self._loss, hint="repeat with --keep and read the logs in the folder that is then kept"
                        )
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise NotInTimeError(f"{why} did not happen within {seconds:g} s") from None
