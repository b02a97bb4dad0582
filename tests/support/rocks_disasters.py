"""Disasters of a RocksDB and of its publisher's folder, in random short sequences, and what has to hold afterwards.

A writer process owns a real database. The world around it restores older copies, wipes, truncates, flips bits and moves
folders. One flow reads on as a publisher does: what a loss report covers is passed, everything else has to come.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from datastores.rocksdb.source import RocksSource
from publisher.sources.supervised import SupervisedSource
from tests.support.rocks_writer import RocksWriter
from wormhole.model.errors import DecodeError, Diverged, PositionPurged, SourceUnavailable, WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.ports.testing.reading import Read

_ENOUGH: Final = 12  # reports that one flow may need after all that happened
_STATE_FILES: Final = ("histories.json", "*/known.json", "*/families.json", "*/times", "*/times.covered", "*/wal/*.log")


class NotLiveError(AssertionError):
    """The flow needs more than it should."""


@dataclass
class _Saved:
    """A copy of the database, and the updates that it holds: serial number -> sequence number."""

    path: Path
    holds: dict[int, int]


@dataclass
class World:
    """``steps``: what happened, for the message of a failure."""

    folder: Path
    chance: random.Random
    steps: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.path = self.folder / "store"
        self.state = self.folder / "state"
        self.serial = 0
        self.holds: dict[int, int] = {}
        self.committed: set[int] = set()
        self.delivered: set[int] = set()
        self.covered: set[int] = set()
        self.watched = False  # the publisher has the log open
        self.seen: set[int] = (
            set()
        )  # the publisher kept their WAL: what came and went before it could, nobody can report
        self.reports: list[str] = []
        self.ids: dict[str, int] = {}
        self.blind = False  # the whole folder is gone: nothing shows any more which history the datamarker came from
        self.forgetful = False  # the publisher's folder was damaged: it cannot know which ids it gave
        self.backups: list[_Saved] = []
        self.states: list[Path] = []
        recycled = self.chance.random() < 0.2
        self.options = {"recycle_log_file_num": 2} if recycled else {}
        self.writer = RocksWriter(self.path, **self.options)
        self.source: SupervisedSource | None = None
        self.begin()
        self.marker: Datamarker = self.running.latest()

    @property
    def running(self) -> SupervisedSource:
        assert self.source is not None
        return self.source

    def close(self) -> None:
        """End everything."""
        self.end()
        self.writer.kill()

    # --- the publisher

    def begin(self) -> None:
        """Start the publisher's side. Whatever is there: it runs and answers."""
        if self.source is None:
            inner = RocksSource(
                self.path,
                log="log",
                state_dir=self.state,
                sharding=Sharding("log"),
                max_update_bytes=1 << 20,
                disk_budget=1 << 30,
            )
            self.source = SupervisedSource(inner, clock=partial(next, count(0, 10)))
            with contextlib.suppress(WormholeError):
                self.source.start()
                self._watch()

    def _watch(self) -> None:
        if not self.watched:
            self.watched = True
            self.seen |= self.holds.keys()

    def end(self) -> None:
        """Stop the publisher's side."""
        self.watched = False
        source, self.source = self.source, None
        if source is not None:
            source.stop()

    # --- the datastore

    def write(self, number: int = 0) -> None:
        """Some updates, one transaction each, sometimes with a flush behind them."""
        before = self.serial
        for _ in range(number or self.chance.choice((1, 3, 40))):
            self.serial += 1
            self.holds[self.serial] = self.writer.put(b"%d" % self.serial, b"v" * self.chance.choice((5, 300)))
            self.committed.add(self.serial)
        if self.watched and self._is_kept():
            self.seen |= set(range(before + 1, self.serial + 1))
        if self.chance.random() < 0.3:
            self.writer.flush()

    def _is_kept(self) -> bool:
        """Whether the publisher has the WAL that is written to: on loaded cores it may not have come to that yet."""
        log = max(self.path.glob("*.log"), key=lambda path: int(path.stem))
        kept = [path.read_bytes() for path in self.state.glob(f"rocksdb/*/wal/{log.name}")]
        return any(content and log.read_bytes().startswith(content) for content in kept)

    def reopen(self, times: int = 0) -> None:
        """The owner closes and opens the database, as often."""
        for _ in range(times or self.chance.choice((1, 2, 9))):
            self.writer.close()
            self.writer.open()

    def back_up(self) -> None:
        """Copy the closed database."""
        self.writer.close()
        copy = self.folder / f"backup{len(self.backups)}"
        shutil.copytree(self.path, copy)
        self.backups.append(_Saved(copy, dict(self.holds)))
        self.writer.open()

    def restore(self) -> None:
        """Bring an older copy back: as a new folder, or over the files that are there."""
        if not self.backups:
            self.back_up()
            self.write()
        saved = self.chance.choice(self.backups)
        self.writer.close()
        if self.chance.random() < 0.5:
            shutil.rmtree(self.path)
        else:
            for file in self.path.iterdir():
                file.unlink()
        shutil.copytree(saved.path, self.path, dirs_exist_ok=True)
        self._replaced(dict(saved.holds))
        self.writer.open()
        self.reopen(self.chance.choice((0, 1, 10)) or 1)

    def move_away_and_back(self) -> None:
        """The database's folder is gone for a moment."""
        self.writer.close()
        away = self.path.with_name("away")
        self.path.rename(away)
        with contextlib.suppress(NotLiveError):
            self.deliver(1)
        away.rename(self.path)
        self.writer.open()

    def wipe(self) -> None:
        """Another, empty database at the same path."""
        self.writer.close()
        shutil.rmtree(self.path)
        self._replaced({})
        self.writer.open()

    def _replaced(self, holds: dict[int, int]) -> None:
        self.holds = holds
        if self.blind and self.marker.anchor is None:
            self._forget()  # neither the folder nor the datamarker knows which database was there

    def lose_the_end(self) -> None:
        """A crash after which the newest WAL is shorter, or has a bit flipped: the database drops what it cannot
        read."""
        self.writer.kill()
        log = max(self.path.glob("*.log"), key=lambda path: int(path.stem), default=None)
        before = dict(self.holds)
        if log is not None and log.stat().st_size:
            _damage(log, self.chance)
        try:
            self.writer = RocksWriter(self.path, **self.options)
        except RuntimeError:  # it cannot be opened any more: the operator brings a copy back, or begins anew
            shutil.rmtree(self.path)
            if self.backups:
                shutil.copytree(self.backups[-1].path, self.path)
            self.writer = RocksWriter(self.path, **self.options)
        there = {int(key) for key, _ in self.writer.rows()}
        self.holds = {serial: sequence for serial, sequence in before.items() if serial in there}
        self._forget()  # a link to the damaged file has the same damage

    # --- the publisher's folder

    def disturb_state(self) -> None:
        """Do something to the publisher's folder, or to one file of it, while it is down."""
        self.end()
        root = self.state / "rocksdb"
        if self.chance.random() < 0.4:
            self._disturb_folder(root if self.chance.random() < 0.5 else next(iter(root.glob("*/wal")), root))
        else:
            files = sorted(root.glob(self.chance.choice(_STATE_FILES)))
            if files:
                file = self.chance.choice(files)
                self.steps[-1] += f" {file.relative_to(root)}"
                # A kept WAL may be a link: what is done to it must not be done to the database's own file.
                content = file.read_bytes()
                file.unlink()
                file.write_bytes(content)
                self.chance.choice((Path.unlink, lambda one: _damage(one, self.chance)))(file)
                if file.suffix == ".log":
                    self._forget()
        self.forgetful = True
        if self.chance.random() < 0.5:
            self.begin()

    def _forget(self) -> None:
        """What was kept of updates that were undone is gone, and with it what was known of them."""
        self.seen -= self.committed - self.delivered - self.holds.keys()

    def _disturb_folder(self, folder: Path) -> None:
        self._forget()
        self.blind = True
        if self.states and folder.name == "rocksdb" and self.chance.random() < 0.6:
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(self.states[-1], folder)
            self.steps[-1] += " older copy"
        elif folder.exists():
            shutil.rmtree(folder)
            self.steps[-1] += f" {folder.name} wiped"

    def copy_state(self) -> None:
        """Remember the publisher's folder for an older copy."""
        self.end()
        if (self.state / "rocksdb").exists():
            self.states.append(self.folder / f"copy{len(self.states)}")
            shutil.copytree(self.state / "rocksdb", self.states[-1])
        self.begin()

    # --- the flow

    def deliver(self, attempts: int = _ENOUGH) -> None:
        """Read to the log's end, as a publisher with an application that accepts every loss that it is told of."""
        self.begin()
        source = self.running
        for _ in range(attempts):
            try:
                end = source.latest()
                self._watch()
                if self._read(end):
                    return
            except (Diverged, PositionPurged) as lost:
                resume = source.earliest()
                self._report(lost, resume)
            except DecodeError as damage:
                self._report(damage, source.locate("latest"))
            except SourceUnavailable as error:
                self.reports.append(str(error))
        raise NotLiveError(f"the flow does not come live: {self.reports[-attempts:]}")

    def _read(self, end: Datamarker) -> bool:
        read = Read(last_end=self.marker.order)
        reader = self.running.open(self.marker)
        empty = 0
        try:
            while self.marker.order < end.order:
                segment = reader.read(1 << 20, 0.1)
                if segment is None:
                    empty += 1
                    if empty > 20:
                        raise SourceUnavailable(f"nothing comes from {self.marker.order} on, before {end.order}")
                    continue
                if segment.gap is not None:
                    first, last = segment.gap.first_missing, segment.gap.last_missing
                    self.reports.append(f"gap {segment.gap.kind.value} {first}-{last}")
                    self._cover(int(first or 0), int(last or segment.gap.first_missing or 0))
                known = len(read.updates)
                read.add(segment)
                for seen in read.updates[known:]:
                    serial = int(seen.key[0])  # type: ignore[call-overload]
                    self.delivered.add(serial)
                    other = self.ids.setdefault(seen.id, serial)
                    assert other == serial or self.forgetful, f"{seen.id} is of update {other} and of {serial}"
                if segment.marker is not None:
                    self.marker = segment.marker
        finally:
            reader.close()
        return True

    def _cover(self, first: int, last: int) -> None:
        self.covered |= {serial for serial, sequence in self.holds.items() if first <= sequence <= last}

    def _report(self, error: WormholeError, resume: Datamarker) -> None:
        """A loss is reported and accepted: the flow goes on at ``resume``.

        All that is not in the log from there on is covered."""
        self.reports.append(f"{type(error).__name__} {error}")
        # A place without a sequence number is the end of the log: the flow goes on with what comes next.
        behind = int(resume.delivered) if resume.delivered else max(self.holds.values(), default=0)
        if isinstance(error, PositionPurged) and not self.blind:
            self._cover(int(error.first_missing or 0), int(error.last_missing or behind))
        else:
            still = {serial for serial, sequence in self.holds.items() if sequence > behind}
            self.covered |= self.committed - still
            self.blind = False
        self.marker = resume

    # --- all of it

    def happen(self, number: int) -> None:
        """That many random steps, and then what has to hold."""
        actions: list[Callable[[], None]] = [
            self.write,
            self.write,
            self.reopen,
            self.back_up,
            self.restore,
            self.restore,
            self.lose_the_end,
            self.move_away_and_back,
            self.wipe,
            self.disturb_state,
            self.disturb_state,
            self.copy_state,
            self.deliver,
            self.end,
            self.begin,
        ]
        self.write()
        for _ in range(number):
            action = self.chance.choice(actions)
            self.steps.append(action.__name__)
            action()
            if self.source is not None and self.chance.random() < 0.6:
                self.steps.append("read")
                self.deliver()
        self.steps.append("and now")
        for _ in range(3):  # the last report may have passed what was written before it
            self.write(3)
            self.deliver()
            last = set(range(self.serial - 2, self.serial + 1))
            if last <= self.delivered:
                break
        else:
            raise NotLiveError(f"the flow is not live: {sorted(last - self.delivered)} did not come")
        silent = (self.committed & (self.seen | self.holds.keys())) - self.delivered - self.covered
        assert not silent, f"{len(silent)} updates never came and no report is about them: {sorted(silent)[:20]}"


def _damage(file: Path, chance: random.Random) -> None:
    """Cut the file short, or flip one bit of it."""
    size = file.stat().st_size
    if not size:
        return
    with file.open("r+b") as stream:
        if chance.random() < 0.5:
            stream.truncate(chance.randrange(size))
        else:
            at = chance.randrange(size)
            stream.seek(at)
            (byte,) = stream.read(1)
            stream.seek(at)
            stream.write(bytes((byte ^ 1 << chance.randrange(8),)))
