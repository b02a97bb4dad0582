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


def test_what_never_came_is_lost() -> None:
    verdict = _check(ALL[:5] + ALL[6:])
    assert [commit.serial for commit in verdict.lost] == [6]
    assert not verdict.violations
    assert not verdict.good


def test_a_dropped_receipt_is_lost_too() -> None:
    verdict = _check(ALL, drop=21)
    assert [commit.key for commit in verdict.lost] == ["order-1"]


def test_a_repeated_suffix_in_a_new_epoch_is_no_violation() -> None:
    late = 60_000_000
    again = [_receipt(commit, epoch=2, at=late) for commit in COMMITS[10:]]
    verdict = _check(ALL, again)
    assert verdict.good
    assert verdict.duplicates == 11


def test_a_repeat_within_one_epoch_is_a_violation() -> None:
    verdict = _check([*ALL, ALL[-1]])
    assert len(verdict.violations) == 1
    assert "same epoch" in verdict.violations[0]


def test_two_swapped_are_a_violation() -> None:
    shard = ALL[0].shard
    mine = _shard_of(ALL, shard)
    mine[1], mine[2] = mine[2], mine[1]
    verdict = _check([*mine, *(receipt for receipt in ALL if receipt.shard != shard)])
    assert len(verdict.violations) == 1
    assert not verdict.lost


def test_what_comes_late_in_a_new_epoch_was_skipped_in_the_old_one() -> None:
    skipped = ALL[3]
    verdict = _check([r for r in ALL if r is not skipped], [replace(skipped, epoch=2, received_ns=90_000_000)])
    assert not verdict.lost
    assert "came after a later one" in verdict.violations[0]


def test_an_older_epoch_must_not_work_beside_a_newer_one() -> None:
    shard = ALL[0].shard
    newer = [
        replace(receipt, epoch=2, received_ns=receipt.received_ns - 1_500_000) for receipt in _shard_of(ALL, shard)
    ]
    verdict = _check(ALL, newer)
    assert any("older epoch" in violation for violation in verdict.violations)


def test_one_epoch_is_at_one_subscriber() -> None:
    shard = ALL[0].shard
    mine = _shard_of(ALL, shard)
    others = [receipt for receipt in ALL if receipt.shard != shard]
    verdict = _check([*others, *mine[:2]], mine[2:])
    assert any("two subscribers" in violation for violation in verdict.violations)


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
