"""What a relay makes of bad input: one clear error or what docs/relay.md says, and the database safe.

- A disk that is full before the budget:
  `test_relayed_source.test_a_disk_that_is_full_before_the_budget_is_takes_the_oldest_file`,
  `test_relay_disk_errors.test_a_full_disk_costs_what_did_not_fit` and the two behind it; a limit of the operating
  system: here.
- A disk that is slow: `test_relayed_source.test_a_disk_that_hangs_holds_up_nobody`,
  `test_relayed_source.test_a_full_queue_costs_the_relay_a_hole_and_the_reader_nothing`,
  `test_hold.test_what_the_relay_cannot_take_is_given_up_once_it_lost_a_whole_budget`.
- A disk that is read-only or fails: `test_relayed_source.test_a_disk_that_cannot_be_written_is_told_and_read_past`,
  `test_relay_disk_errors.test_a_folder_that_cannot_be_used`; a folder that is a file: here.
- Files of another version: `test_relay_disk_errors.test_a_file_of_a_later_format`.
- Files of another log: `test_relay_files.test_files_of_another_identity`,
  `test_relayed_source.test_the_relay_of_another_log_is_not_read_and_goes_when_there_is_more`.
- A changed `shard_by`: here.
- A budget below one transaction: here, and
  `test_relayed_source.test_a_transaction_larger_than_a_part_of_the_budget_is_a_hole`.
- Two publishers on one folder: here, with processes "relay: doubled" of `tests/system/test_disasters.py`.
- A bit that flipped: `test_relay_disk_errors.test_damage_in_one_file_leaves_the_others`,
  `test_relay_files.test_damage_is_not_served`, "relay: corrupted" of the disasters.
"""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from datastores.memory.source import MemorySource
from publisher.relay.settings import RelayIdentity, RelaySettings
from publisher.relay.source import RelayedSource
from tests.support.eventually import until
from tests.support.present import present
from wormhole.model.errors import UsageError, WormholeError
from wormhole.model.position import Datamarker
from wormhole.model.sharding import Sharding
from wormhole.model.values import Op
from wormhole.ports.testing.reading import read_log

IDENTITY: Final = RelayIdentity("shop/main/db1", "memory", "log", 1 << 20, "")
HOLD: Final = RelaySettings("hold", 64 << 20, 10_000, "lose", compress=False)


def _commit(log: MemorySource, count: int, size: int = 1000) -> Datamarker:
    for number in range(count):
        log.commit([(Op.UPSERT, "t", b"%d" % number, {"value": b"x" * size})])
    return log.latest()


@contextmanager
def _started(source: RelayedSource) -> Iterator[RelayedSource]:
    source.start()
    try:
        yield source
    finally:
        source.stop()


def _recorded(source: RelayedSource, end: Datamarker) -> bool:
    relay = present(source.status().relay)
    return relay.synced is not None and relay.synced >= end.order


@contextmanager
def _largest_file(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_limit_of_the_operating_system_is_a_problem_and_nothing_is_missing(tmp_path: Path) -> None:
    log = MemorySource("db1")
    begin = log.earliest()
    with _started(RelayedSource(log, tmp_path / "relay", IDENTITY, HOLD)) as source:
        with _largest_file(50_000):
            _commit(log, 100)
            assert len(read_log(source, begin).keys()) == 100
            until(lambda: source.status().problems, "nobody is told that nothing is recorded")
            source.release(begin.order)
            assert len(read_log(source, begin).keys()) == 100
        assert "cannot be written" in str(source.status().problems[0])


def test_a_folder_that_is_a_file_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "relay").write_text("")
    with pytest.raises(WormholeError, match=r"relay folder .* cannot be opened") as error:
        RelayedSource(MemorySource("db1"), tmp_path / "relay", IDENTITY, HOLD).start()
    assert "relay_folder" in str(error.value)


def test_a_changed_shard_by_is_refused_while_only_the_relay_may_have_the_log(tmp_path: Path) -> None:
    log = MemorySource("db1")
    with _started(RelayedSource(log, tmp_path / "relay", IDENTITY, HOLD)) as source:
        end = _commit(log, 10)
        read_log(source, log.earliest())
        until(lambda: _recorded(source, end), "not recorded")
    other = replace(IDENTITY, sharding="hash = 4")
    with pytest.raises(UsageError, match="sharding 'log' instead of 'hash = 4'") as error:
        RelayedSource(log, tmp_path / "relay", other, HOLD).start()
    assert "set this back until all flows have passed" in str(error.value)
    assert "relay trim --all" in str(error.value)


def test_a_changed_shard_by_begins_a_cache_anew(tmp_path: Path) -> None:
    cache = replace(HOLD, mode="cache", slot_budget=0)
    log = MemorySource("db1", Sharding("log"))
    with _started(RelayedSource(log, tmp_path / "relay", IDENTITY, cache)) as source:
        _commit(log, 10)
        read_log(source, log.earliest())
    with _started(RelayedSource(log, tmp_path / "relay", replace(IDENTITY, sharding="hash = 4"), cache)) as source:
        assert present(source.status().relay).tip is None
        assert len(read_log(source, log.earliest()).keys()) == 10


def test_two_publishers_on_one_folder_are_one_error_of_the_second(tmp_path: Path) -> None:
    log = MemorySource("db1")
    with _started(RelayedSource(log, tmp_path / "relay", IDENTITY, HOLD)) as source:
        with pytest.raises(UsageError, match="in use by another process") as error:
            RelayedSource(log, tmp_path / "relay", IDENTITY, HOLD).start()
        assert "one publisher writes a relay" in str(error.value)
        _commit(log, 3)
        assert len(read_log(source, log.earliest()).keys()) == 3


def test_a_transaction_that_is_larger_than_the_budget_goes_through(tmp_path: Path) -> None:
    """It is a hole of the relay; while the log has it nobody misses it."""
    log = MemorySource("db1", max_update_bytes=1 << 20)
    begin = log.earliest()
    small = replace(HOLD, budget=20_000, on_full="keep_slot")
    with _started(RelayedSource(log, tmp_path / "relay", IDENTITY, small)) as source:
        _commit(log, 5)
        _commit(log, 1, 60_000)
        _commit(log, 5)
        assert len(read_log(source, begin).keys()) == 11
        source.recorder.flush()
        source.release(begin.order)
        assert len(read_log(source, begin).keys()) == 11
