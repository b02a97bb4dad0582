"""Effects exactly once: counters that are fed by increments, and a ledger that sums to zero, are what the source's
transactions make them, each counted once, whatever was killed or cut on the way.

Each round chooses a fault by the seed. A soak has ``WORMHOLE_ROUNDS`` rounds for each target. The seed also chooses how
often effects are committed: with the longest interval a round mostly waits.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, count, islice
from pathlib import Path

import pytest

from tests.support.eventually import until
from tests.support.seed import SEED
from tests.system.harness.commit_proxy import PLACES
from tests.system.harness.counted import APPLICATION, Counted
from tests.system.harness.target_faults import OF_EVERY_TARGET, OF_SERVERS, Faults
from tests.system.harness.targets import KINDS, PooledPostgres, ServerTarget, Target

ROUNDS = int(os.environ.get("WORMHOLE_ROUNDS", "10"))
SHORT = ("cut_subscriber", "publisher_killed")
SERVERS = ("postgres", "mariadb")
MARKER_INTERVALS = ("10ms", "100ms", "1s")
PARKING = 'on_failure = "park"\nretry = { attempts = 2, first_wait = "5ms", longest_wait = "5ms" }'
NewScene = Callable[..., Counted]


@pytest.fixture(scope="module", params=list(KINDS))
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    made = {**KINDS, "pooled": PooledPostgres}[request.param](tmp_path_factory.mktemp("target"))
    yield made
    made.close()


@pytest.fixture
def scene(target: Target, tmp_path: Path) -> Iterator[NewScene]:
    """``scene(members=2)``: everything runs."""
    scenes: list[Counted] = []

    def made(**more: object) -> Counted:
        scenes.append(Counted(tmp_path, target, random.Random(SEED), **more))  # type: ignore[arg-type]
        scenes[-1].start()
        return scenes[-1]

    yield made
    for one in scenes:
        one.close()


def _rounds(counted: Counted, kinds: Iterable[str], say: Callable[[str], None]) -> None:
    faults = Faults(counted)
    for number, kind in enumerate(kinds):
        say(f"  round {number} on {counted.target.kind}, seed {SEED}: {kind}")
        getattr(faults, kind)()
        counted.transfer()
        counted.check()
    counted.finish()


@pytest.mark.parametrize("target", ["postgres"], indirect=True)
def test_two_rounds(scene: NewScene, say: Callable[[str], None]) -> None:
    _rounds(scene(), SHORT, say)


def test_round_after_round(scene: NewScene, say: Callable[[str], None]) -> None:
    order = random.Random(SEED)
    interval = order.choice(MARKER_INTERVALS)
    say(f"  effects are committed every {interval}")
    counted = scene(marker_interval=interval)
    kinds = OF_EVERY_TARGET + (OF_SERVERS if isinstance(counted.target, ServerTarget) else ())
    shuffled = chain.from_iterable(order.sample(kinds, len(kinds)) for _ in count())
    _rounds(counted, islice(shuffled, ROUNDS), say)


def test_without_a_common_transaction_effects_happen_twice(scene: NewScene) -> None:
    counted = scene(handling="at least once")
    Faults(counted).subscriber_killed()
    with pytest.raises(AssertionError, match="too often"):
        counted.check()


@pytest.mark.soak
@pytest.mark.parametrize("kind", OF_EVERY_TARGET)
def test_a_fault_of_every_target(scene: NewScene, kind: str) -> None:
    _one(scene(), kind)


@pytest.mark.soak
@pytest.mark.parametrize("target", SERVERS, indirect=True)
@pytest.mark.parametrize("kind", OF_SERVERS)
def test_a_fault_of_a_server(scene: NewScene, kind: str) -> None:
    _one(scene(), kind)


@pytest.mark.parametrize("target", SERVERS, indirect=True)
def test_a_connection_is_cut_at_any_message_of_a_commit(scene: NewScene, say: Callable[[str], None]) -> None:
    counted = scene()
    for place in range(PLACES[counted.target.kind]):
        say(f"  {counted.target.kind} is cut at message {place}")
        Faults(counted).cut(place)
        counted.transfer()
        counted.check()
    counted.finish()


@pytest.mark.parametrize("in_transaction", [False, True], ids=["between", "in"])
@pytest.mark.parametrize("target", [*SERVERS, "pooled"], indirect=True)
def test_a_zombie_changes_nothing(scene: NewScene, in_transaction: bool) -> None:
    counted = scene(members=2)
    Faults(counted).zombie(in_transaction=in_transaction)
    counted.transfer(3)
    counted.check()
    counted.finish()


@pytest.mark.parametrize("target", ["pooled"], indirect=True)
def test_a_pooler_that_gives_each_transaction_another_session(
    scene: NewScene, target: Target, say: Callable[[str], None]
) -> None:
    _rounds(scene(), ("cut", "subscriber_killed", "server_killed"), say)
    sessions = target.run("SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()")
    assert sessions[0][0] > 2  # the test's own, and several of the pooler


@pytest.mark.parametrize("target", SERVERS, indirect=True)
def test_a_dead_letter_that_comes_twice_counts_once(scene: NewScene, target: Target) -> None:
    counted = scene(policies=PARKING)
    counted.trick("refuse")
    counted.transfer(1, "a", "b")
    until(lambda: counted.flow().dead_letters == 1, lambda: counted.story("not parked"))
    counted.untrick("refuse")
    assert isinstance(target, ServerTarget)
    counted.trick("gate", str(counted.number))
    counted.publisher.change(APPLICATION, "retry_dead_letters")
    counted.entered(counted.subscriber)
    target.proxy.arm(2, counted.publisher.kill)  # after it was counted, and before the publisher hears of that
    counted.untrick("gate")
    target.proxy.await_fired()
    counted.publisher.start()
    until(lambda: counted.flow().state == "live" and not counted.flow().dead_letters, lambda: counted.story("parked"))
    counted.transfer()
    counted.check()
    counted.finish()


@pytest.mark.parametrize("target", ["mariadb"], indirect=True)
def test_a_table_made_by_the_handler_ends_the_transaction_and_halts(scene: NewScene) -> None:
    counted = scene()
    counted.trick("ddl")
    counted.transfer()
    counted.halted("committed without its datamarker")


def test_an_empty_target_halts_and_offers_a_backfill(scene: NewScene, target: Target) -> None:
    counted = scene()
    _acknowledged(counted)
    counted.subscriber.kill()
    target.run("DELETE FROM wormhole_marker")
    counted.subscriber.start()
    counted.halted("backfill start")


COPIED = ("postgres", "sqlite")


@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.parametrize("target", COPIED, indirect=True)
def test_an_older_copy_of_the_target_is_gone_on_from(
    scene: NewScene, target: Target, tmp_path: Path, moved: bool
) -> None:
    """``moved``: an operator sets the datamarker after the copy was made, and the application goes on from there."""
    counted = scene()
    assert counted.subscriber.stop() == 0
    target.copy(tmp_path / "copy")
    counted.subscriber.start()
    counted.transfer(5)
    counted.check()
    _acknowledged(counted)
    assert counted.subscriber.stop() == 0
    if moved:
        counted.publisher.change(APPLICATION, "set_marker", place="earliest")
        counted.subscriber.start()
        _acknowledged(counted)
        assert counted.subscriber.stop() == 0
    target.put_back(tmp_path / "copy")
    assert max(number for number, _, _ in target.ledger()) == 1
    counted.subscriber.start()
    counted.check()
    counted.transfer()
    counted.check()
    counted.finish()


@pytest.mark.parametrize("target", COPIED, indirect=True)
def test_a_target_of_another_history_is_refused(scene: NewScene, target: Target, tmp_path: Path) -> None:
    """A copy that another installation filled. Then each way on that the runbook names."""
    (tmp_path / "elsewhere").mkdir()
    other = Counted(tmp_path / "elsewhere", target, random.Random(SEED + 1))
    other.start()
    other.transfer(3)
    other.check()
    other.finish()
    other.close()
    target.copy(tmp_path / "others")

    counted = scene()
    _acknowledged(counted)
    assert counted.subscriber.stop() == 0
    target.copy(tmp_path / "own")
    marker = counted.flow().marker
    _refused(counted, tmp_path / "others")
    assert counted.flow().marker == marker
    target.put_back(tmp_path / "own")  # the right copy
    counted.publisher.change(APPLICATION, "resume")
    counted.transfer()
    counted.check()

    assert counted.subscriber.stop() == 0
    _refused(counted, tmp_path / "others")
    target.empty()  # no right copy
    counted.publisher.change(APPLICATION, "resume")
    counted.halted("backfill start")
    counted.publisher.change(APPLICATION, "set_marker", place="earliest")
    counted.publisher.change(APPLICATION, "resume")
    counted.check()
    counted.finish()


def _refused(counted: Counted, copy: Path) -> None:
    target = counted.target
    target.put_back(copy)
    ledger = target.ledger()
    counted.subscriber.start()
    until(lambda: "another history" in counted.flow().cause, lambda: counted.story("not refused"))
    assert counted.flow().state == "held"
    assert target.ledger() == ledger


def _acknowledged(counted: Counted) -> None:
    until(lambda: int(counted.flow().marker.delivered or 0) // 2 == counted.number, "not acknowledged")


def _one(counted: Counted, kind: str) -> None:
    getattr(Faults(counted), kind)()
    counted.transfer()
    counted.check()
    counted.finish()
