"""A relay beside a log that forgets what it may: whatever happens, nothing is missing that was not told.

The memory source is the hardest database there is: what :meth:`release` allows is gone at once. A lead reads its end,
flows read from where they are, are opened again and again, and are killed with their publisher; the relay's disk
loses power, and its budget is too small or not.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path
from typing import Final, Literal
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.memory.source import MemorySource
from publisher.relay import filler, recorder
from publisher.relay.settings import RelayIdentity, RelaySettings
from publisher.relay.source import RelayedSource
from tests.support.eventually import until
from tests.support.present import present
from wormhole.model.errors import PositionPurged
from wormhole.model.position import Datamarker
from wormhole.model.segment import Segment
from wormhole.model.values import Op
from wormhole.ports.log_source import LogReader, PurgedInside
from wormhole.ports.testing.reading import Read

Mode = Literal["cache", "hold"]
Policy = Literal["lose", "keep_slot"]

IDENTITY: Final = RelayIdentity("shop/main/db1", "memory", "log", 1 << 20, "")
SLOT_BUDGET: Final = 4_000
FLOWS: Final = 3
_READ: Final = 1_500


class Flow:
    """``next``: the transaction that is due. ``told``: numbers of the first and the last of each range that was told
    to be missing.
    """

    def __init__(self, marker: Datamarker) -> None:
        self.told: list[tuple[int, int]] = []
        self.close_at(marker)

    def close_at(self, marker: Datamarker) -> None:
        """Without a reader; the next one begins there."""
        self.marker = marker
        self.reader: LogReader | None = None
        self.read = Read()
        self.next = int(marker.delivered) + 1

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
        self.close_at(self.marker)

    def take(self, segment: Segment) -> None:
        """What was read follows what was read before."""
        self.read.add(segment)
        for run in segment.runs.values():
            for number in run.tx_number[: len(run.tx_end)]:
                assert number == self.next, f"transaction {number} came where {self.next} was due; told: {self.told}"
                self.next = number + 1
        if segment.marker is not None:
            self.marker = segment.marker
            assert int(self.marker.delivered) == self.next - 1

    def tell(self, first: str, last: str) -> None:
        """A range is missing, and the flow goes on behind it."""
        assert not first or int(first) == self.next, f"{first} to {last} are missing, and {self.next} is due"
        assert int(last) >= self.next, f"{first} to {last} are missing, and {self.next} is due"
        self.told.append((self.next, int(last)))
        self.next = int(last) + 1


class World:
    """Transactions are numbered from 1 on. ``full``: the budget is smaller than what is written. ``written``: how many
    there are before there is a relay.
    """

    def __init__(
        self, folder: Path, mode: Mode, *, on_full: Policy = "lose", full: bool = False, written: int = 0
    ) -> None:
        self.log = MemorySource("db1", max_update_bytes=1 << 20)
        self.folder = folder / "relay-0"
        self.settings = RelaySettings(
            mode,
            80_000 if full else 64 << 20,
            SLOT_BUDGET if mode == "hold" else 0,
            on_full,
            compress=False,
        )
        self.may_lose = full and on_full == "lose"
        self.committed = 0
        self.starts = 0
        self.flows = [Flow(self.log.earliest()) for _ in range(FLOWS)]
        self.written = written
        for _ in range(written):
            self.commit(1, 1000)
        self.start()

    # -- the publisher

    def start(self) -> None:
        self.source = RelayedSource(self.log, self.folder, IDENTITY, self.settings)
        self.source.start()
        relay = present(self.source.status().relay)
        begin = relay.tip or (self.log.latest() if self.written else self.log.earliest())
        self.lead = Flow(begin)
        self.starts += 1

    def restart(self) -> None:
        self._close_all()
        self.source.stop()
        self.start()

    def kill(self) -> None:
        """What is on the disk now is all that is left; a lock goes with its process."""
        left = self.folder.with_name(f"relay-{self.starts}")
        left.mkdir()
        for file in sorted(self.folder.iterdir()):
            with contextlib.suppress(FileNotFoundError):  # it goes just now
                shutil.copy(file, left)
        self._close_all()
        self.source.stop()
        self.folder = left
        self.start()

    def close(self) -> None:
        self._close_all()
        self.source.stop()

    def _close_all(self) -> None:
        for flow in (*self.flows, self.lead):
            flow.close()

    # -- what happens

    def commit(self, rows: int, size: int) -> None:
        self.committed += 1
        self.log.commit([(Op.UPSERT, "t", b"%d" % row, {"value": b"x" * size}) for row in range(rows)])

    def advance(self, flow: Flow, pieces: int) -> bool:
        """Read on; whether something came."""
        came = False
        for _ in range(pieces):
            if flow.reader is None and not self._open(flow):
                return True
            assert flow.reader is not None
            try:
                segment = flow.reader.read(_READ, 0.0)
            except PositionPurged:  # the datastore gave up the rest of a transaction
                flow.close()
                return True
            if segment is None:
                break
            came = True
            if segment.gap is not None:
                assert self._may_lose(flow), f"a loss was told, and there is room: {segment.gap}"
                flow.tell(segment.gap.first_missing, segment.gap.delivered)
            flow.take(segment)
        return came

    def _open(self, flow: Flow) -> bool:
        try:
            flow.reader = self.source.open(flow.marker)
        except PositionPurged as error:
            self._lost(flow, error)
            return False
        return True

    def _lost(self, flow: Flow, error: PositionPurged) -> None:
        """What :mod:`publisher.flows.losses` does when the application goes on."""
        assert self._may_lose(flow), f"a loss was told, and there is room: {error}"
        resume = error.resume if isinstance(error, PurgedInside) else self.source.earliest()
        assert resume.order > flow.marker.order, "it would meet the same hole again"
        assert error.last_missing == resume.delivered
        flow.tell(error.first_missing, resume.delivered)
        flow.close_at(resume)

    def _may_lose(self, flow: Flow) -> bool:
        return self.may_lose or flow is self.lead  # nobody keeps log for the lead

    def release(self) -> None:
        oldest = min(flow.marker.order for flow in self.flows)
        self.source.release(oldest)

    def settle(self) -> None:
        """The lead has read everything, it is recorded and synced, and the log was told what it need not keep."""
        for flow in self.flows:
            flow.close()  # nobody reads for it just now, and it may be the one that records
        self.commit(1, 1)  # only what comes shows that a lead at the end reads the log that was recorded
        while self.advance(self.lead, 10):
            pass

        def settled() -> bool:
            while self.advance(self.lead, 10):
                pass
            relay = present(self.source.status().relay)
            at_end = (relay.tip or self.log.earliest()).order == self.log.latest().order
            # What is missing of a cache, the log has.
            return relay.mode == "cache" or (at_end and relay.unsynced_bytes == 0) or bool(relay.problem)

        until(settled, lambda: f"it does not settle: {self.source.status().relay}, {self.log.latest()}")
        self.release()

    def kept(self) -> int:
        return self.log.status().pinned_bytes


Step = tuple[str, int, int]
STEPS: Final = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 30), st.sampled_from([1, 100, 3000])),
        st.tuples(st.just("lead"), st.integers(1, 20), st.just(0)),
        st.tuples(st.just("flow"), st.integers(0, FLOWS - 1), st.integers(1, 20)),
        st.tuples(st.just("leave"), st.integers(0, FLOWS - 1), st.just(0)),
        st.tuples(st.sampled_from(["release", "settle", "restart", "kill", "rotate"]), st.just(0), st.just(0)),
    ),
    min_size=10,
    max_size=60,
)


def _take(world: World, step: Step) -> None:
    match step:
        case ("commit", count, size):
            for number in range(count):
                world.commit(1 + (number == 7) * 5, size)
        case ("lead", pieces, _):
            world.advance(world.lead, pieces)
        case ("flow", number, pieces):
            world.advance(world.flows[number], pieces)
        case ("leave", number, _):
            world.flows[number].close()
        case ("rotate", _, _):
            world.log.rotate()
            world.commit(1, 1)
        case (name, _, _):
            getattr(world, name)()


def _run(mode: Mode, steps: list[Step], *, on_full: Policy = "lose", full: bool = False) -> None:
    quick = patch.multiple(recorder, _SYNC_S=0.0, _GATHER_S=0.001)
    with quick, patch.multiple(filler, _READ_BYTES=_READ, _WAIT_S=0.01), tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), mode, on_full=on_full, full=full)
        try:
            for step in steps:
                _take(world, step)
            world.settle()
            if mode == "hold" and (not full or on_full == "lose"):
                assert world.kept() <= SLOT_BUDGET + 20_000, "the log is kept, and the relay has it"
            for flow in world.flows:
                while world.advance(flow, 10) or flow.next <= world.committed:
                    pass
                assert flow.next == world.committed + 1
        finally:
            world.close()


@pytest.mark.parametrize("mode", ["cache", "hold"])
@given(STEPS)
def test_nothing_is_missing_while_there_is_room(mode: Mode, steps: list[Step]) -> None:
    _run(mode, steps)


@given(STEPS)
def test_a_full_relay_tells_what_it_lost(steps: list[Step]) -> None:
    _run("hold", steps, full=True)


@pytest.mark.parametrize("mode", ["cache", "hold"])
@given(STEPS)
def test_a_full_relay_that_keeps_the_log_loses_nothing(mode: Mode, steps: list[Step]) -> None:
    """A cache always does."""
    _run(mode, steps, on_full="keep_slot", full=True)


def test_a_relay_that_is_turned_on_later_takes_what_flows_need(tmp_path: Path) -> None:
    """The lead begins at the log's end, far beyond the budget of the log."""
    world = World(tmp_path, "hold", written=60)
    try:
        world.release()
        world.commit(1, 1000)
        world.settle()
        assert world.kept() <= SLOT_BUDGET
        for flow in world.flows:
            while world.advance(flow, 10) or flow.next <= world.committed:
                pass
            assert flow.told == []
    finally:
        world.close()
