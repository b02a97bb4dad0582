"""The demo's checker must notice each kind of fault; here every kind is made once."""

from __future__ import annotations

from dataclasses import replace

import pytest

from examples.demo.checker import Checker, Verdict, percentile
from examples.demo.journal import Commit, Receipt
from wormhole.model.sharding import shard_of_hash

SHARDS = 2
COMMITS = [
    *(Commit(n, n, "users", f"user-{n % 4}", f"digest-{n}", n * 1_000_000, n * 1_000_000) for n in range(1, 21)),
    Commit(21, 21, "orders", "order-1", "-", 21_000_000, 21_000_000),
]
CONTENT = {("users", f"user-{n % 4}"): f"digest-{n}" for n in range(17, 21)}


def _receipt(commit: Commit, epoch: int = 1, at: int = 0) -> Receipt:
    serial = 0 if commit.digest == "-" else commit.serial
    received = at or commit.scheduled_ns + 2_000_000
    shard = shard_of_hash("db1", commit.key.encode(), SHARDS)
    return Receipt(shard, epoch, f"id-{commit.serial}", commit.table, commit.key, serial, commit.digest, received)


def _check(receipts: list[Receipt], *others: list[Receipt], drop: int | None = None) -> Verdict:
    received = {f"cache-{number}": mine for number, mine in enumerate((receipts, *others))}
    return Checker(COMMITS, "db1", SHARDS, CONTENT).check("cache", received, drop)


ALL = [_receipt(commit) for commit in COMMITS]


def _shard_of(receipts: list[Receipt], shard: str) -> list[Receipt]:
    return [receipt for receipt in receipts if receipt.shard == shard]


def test_all_in_order_is_good() -> None:
    verdict = _check(ALL)
    assert verdict.good
    assert (verdict.updates, verdict.received, verdict.duplicates) == (21, 21, 0)
    assert verdict.latencies == verdict.steady == [2.0] * 21


SHARD = ALL[0].shard
MINE, OTHERS = _shard_of(ALL, SHARD), [receipt for receipt in ALL if receipt.shard != SHARD]
FAULTS: dict[str, tuple[list[list[Receipt]], list[int], str]] = {
    "what never came": ([ALL[:5] + ALL[6:]], [6], ""),
    "a repeat within one epoch": ([[*ALL, ALL[-1]]], [], "same epoch"),
    "two swapped": ([[MINE[0], MINE[2], MINE[1], *MINE[3:], *OTHERS]], [], "not after the one before it"),
    "what was skipped in the old epoch": (
        [[one for one in ALL if one is not ALL[3]], [replace(ALL[3], epoch=2, received_ns=90_000_000)]],
        [],
        "came after a later one",
    ),
    "an older epoch at work beside a newer one": (
        [ALL, [replace(one, epoch=2, received_ns=one.received_ns - 1_500_000) for one in MINE]],
        [],
        "older epoch",
    ),
    "one epoch at two subscribers": ([[*OTHERS, *MINE[:2]], MINE[2:]], [], "two subscribers"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_every_fault_is_seen(name: str) -> None:
    received, lost, said = FAULTS[name]
    verdict = _check(*received)
    assert [commit.serial for commit in verdict.lost] == lost
    assert any(said in violation for violation in verdict.violations) is bool(said)
    assert not verdict.good


def test_a_dropped_receipt_is_lost_too() -> None:
    assert [commit.key for commit in _check(ALL, drop=21).lost] == ["order-1"]


def test_a_repeated_suffix_in_a_new_epoch_is_no_violation() -> None:
    verdict = _check(ALL, [_receipt(commit, epoch=2, at=60_000_000) for commit in COMMITS[10:]])
    assert verdict.good
    assert verdict.duplicates == 11


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"digest": "another"}, "never committed"),
        ({"key": "user-99"}, "never committed"),
        ({"shard": "db1.elsewhere"}, "belongs to"),
        ({"update_id": "id-20"}, "same update id"),
    ],
)
def test_a_receipt_that_does_not_fit_its_commit_is_a_violation(change: dict[str, str], said: str) -> None:
    receipts = [replace(ALL[0], **change), *ALL[1:]]  # type: ignore[arg-type]
    verdict = _check(receipts)
    assert any(said in violation for violation in verdict.violations), verdict.violations


def test_the_final_state_must_be_the_stores() -> None:
    content = {**CONTENT, ("users", "user-0"): "what nobody wrote"}
    verdict = Checker(COMMITS, "db1", SHARDS, content).check("cache", {"cache-1": ALL})
    assert verdict.differs == [("users", "user-0")]
    assert not verdict.good


def test_what_was_under_way_during_a_recovery_is_not_steady() -> None:
    # Changes 5 to 8 are due in the interval; 3 and 4 were due before and received in it.
    checker = Checker(COMMITS, "db1", SHARDS, CONTENT, [(5_000_000, 8_000_000)])
    verdict = checker.check("cache", {"cache-1": ALL})
    assert len(verdict.latencies) == 21
    assert len(verdict.steady) == 21 - 6


def test_percentiles_are_of_the_nearest_rank() -> None:
    values = [float(n) for n in range(100, 0, -1)]
    assert percentile(values, 0.5) == 50
    assert percentile(values, 0.99) == 99
    assert percentile([3.0], 0.99) == 3
    assert percentile([], 0.5) == 0
