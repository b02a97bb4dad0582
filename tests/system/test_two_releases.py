"""Publishers and subscribers of the release before work with those of this one, and both go on from each other's state.

The code of before is taken from the history of this checkout; it runs interpreted. Files and frames of it are read in
tests/compatibility.
"""

from __future__ import annotations

import io
import random
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.prepare import ROOT
from tests.support.seed import SEED
from tests.system.harness.ensemble import WORMHOLECTL, Ensemble, Plan
from tests.system.test_kill_nine import Round, applications

BEFORE = "596e9eb"
WORMHOLECTL_OF_BEFORE = (
    "from tests.system.harness.child import die_with_parent as d; d(); from wormhole.cli import main; main()"
)
PLANS: dict[str, Callable[[], Plan]] = {
    "rocksdb, static, local markers": lambda: Plan(applications(), zookeeper=False),
    "mysql, zookeeper, zookeeper markers, hash shards": lambda: Plan(
        applications("shop."), datastore="mysql", markers="zookeeper", shard_by="{ hash = 4 }"
    ),
}

Say = Callable[[str], None]


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout of that commit."""
    packed = subprocess.run(["git", "archive", BEFORE], cwd=ROOT, capture_output=True)
    if packed.returncode:
        pytest.skip(f"this checkout has no commit {BEFORE}: fetch its history")
    folder = tmp_path_factory.mktemp("before")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.mark.soak
@pytest.mark.parametrize("name", PLANS, ids=[name.replace(", ", "-") for name in PLANS])
def test_nothing_is_lost_between_two_releases(name: str, before: Path, tmp_path: Path, say: Say) -> None:
    plan = PLANS[name]()
    plan.seed, plan.tree = f"{SEED}/{name}", before
    say(f"\ntwo releases, {name}, seed {plan.seed}")
    chance = random.Random(plan.seed)
    ensemble = Ensemble(plan, tmp_path)
    try:
        publisher_of(ensemble, before, WORMHOLECTL_OF_BEFORE)
        ensemble.start()
        ensemble.tell("go")
        ensemble.await_all()
        publisher_of(ensemble, ROOT, WORMHOLECTL)
        rounds(ensemble, chance, "publisher of this release, subscribers of the one before", say)
        for subscriber, member in ensemble.members.items():
            member.process.kill()
            member.process.tree = ROOT
            ensemble.start_subscriber(subscriber)
        publisher_of(ensemble, before, WORMHOLECTL_OF_BEFORE)
        rounds(ensemble, chance, "publisher of the release before, subscribers of this one", say)
        publisher_of(ensemble, ROOT, WORMHOLECTL)
        ensemble.tell("pause")
        ensemble.await_all()
        ensemble.check_state()
        assert all(checker.reached() for checker in ensemble.checkers.values())
        assert not any(checker.losses for checker in ensemble.checkers.values())
    finally:
        ensemble.close()


def publisher_of(ensemble: Ensemble, tree: Path, program: str) -> None:
    """``kill -9`` of the publisher where one runs, and another release in its place."""
    running = ensemble.publisher.alive
    ensemble.publisher.kill()
    ensemble.publisher.tree = tree
    ensemble.publisher.arguments[1] = program
    if running:
        ensemble.publisher.start()


def rounds(ensemble: Ensemble, chance: random.Random, who: str, say: Say) -> None:
    """Kill either side, and both, while the log goes on in another file."""
    for kind in ("publisher", "subscriber", "publisher+subscriber"):
        ensemble.tell("flush")
        Round(ensemble, chance).run(kind)
        ensemble.await_all()
    figures = ensemble.figures().values()
    repeated, epochs = sum(one.duplicates for one in figures), sum(one.epochs for one in figures)
    say(f"  {who}: updates {sum(one.updates for one in figures)}, repeated {repeated}, epochs {epochs}")
