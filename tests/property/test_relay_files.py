"""Relay files: whatever is done with them, when the power goes, what was synced is there and nothing torn is served."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable

from hypothesis import given
from hypothesis import strategies as st

from publisher.relay.files import RelayFiles
from tests.support.relay_disk import FakeDisk, PowerLostError, Survives
from tests.support.relay_journey import Promises, TransactionLog, opened

LOG = TransactionLog()


class Walk:
    """Does one step after the other, and goes on where the files end."""

    def __init__(self, disk: FakeDisk, promises: Promises) -> None:
        self.disk = disk
        self.promises = promises
        self.begun = 0
        self.files: RelayFiles = opened(disk)
        self.append()

    def at(self) -> int:
        """The transaction that follows."""
        stretches = self.files.stretches
        if not stretches:
            self.files.begin(LOG.markers[self.begun])
        else:
            self.begun = LOG.markers.index(stretches[-1].end)
        return self.begun

    def append(self) -> None:
        if (at := self.at()) < len(LOG.parts):
            self.files.append(*LOG.parts[at])

    def begin_one(self) -> None:
        """Write a transaction but for its end."""
        if (at := self.at()) < len(LOG.parts):
            self.files.append(*LOG.parts[at][:-1])
            self.sync()
            self.files.abandon()

    def sync(self) -> None:
        try:
            self.files.sync()
        finally:
            self.promises.synced(self.files)

    def fail(self) -> None:
        """The disk breaks, and works again."""
        self.disk.break_down("sync", errno.EIO)
        with contextlib.suppress(OSError):
            self.sync()
        self.disk.work()

    def fill(self) -> None:
        """The disk is full, and has room again."""
        self.disk.capacity = self.disk.used() + 300
        with contextlib.suppress(OSError):
            self.append()
        self.disk.capacity = 1 << 30

    def leave_out(self) -> None:
        """A hole."""
        if (at := self.at()) + 1 < len(LOG.parts):
            self.files.begin(LOG.markers[at + 1])
            self.append()

    def drop(self) -> None:
        if self.files.drop_oldest():
            self.promises.dropped(self.files)

    def restart(self) -> None:
        self.files.close()
        self.files = opened(self.disk)


STEPS = (Walk.append, Walk.begin_one, Walk.sync, Walk.fail, Walk.fill, Walk.leave_out, Walk.drop, Walk.restart)


@given(st.lists(st.sampled_from(STEPS), max_size=16), st.integers(0, 70), st.sampled_from(Survives))
def test_what_was_synced_survives(steps: list[Callable[[Walk], None]], number: int, survives: Survives) -> None:
    promises, disk = Promises(LOG), FakeDisk(power_lost_at=number)
    try:
        walk = Walk(disk, promises)
        for step in steps:
            step(walk)
            promises.check(walk.files)
    except PowerLostError:
        pass
    disk.power_lost_at = number
    files = opened(disk.after_power_loss(survives))
    promises.check(files)
    files.close()
