"""The columns of transactions: they grow, are taken and start again."""

from __future__ import annotations

from types import ModuleType

from tests.support.hot import hot_module

transactions = hot_module("datastores.common.encode.transactions")


def test_columns_grow_and_keep_what_they_hold(transactions: ModuleType) -> None:
    t = transactions.Transactions()
    for i in range(3000):
        t.add(i % 3, i, 10 * i, -i)
        if i < 2999:
            t.end(i + 1)
        t.passes(i % 3, i)
    assert (t.count, t.ended, t.passed) == (3000, 2999, 3000)
    assert t.sources[:3000].tolist() == [i % 3 for i in range(3000)]
    assert t.numbers[:3000].tolist() == list(range(3000))
    assert t.offsets[:3000].tolist() == list(range(0, 30_000, 10))
    assert t.times[:3000].tolist() == list(range(0, -3000, -1))
    assert t.ends[:2999].tolist() == list(range(1, 3000))
    sources, numbers = t.take_passed()
    assert (sources.tolist(), numbers.tolist()) == ([i % 3 for i in range(3000)], list(range(3000)))
    assert t.take_passed()[1].tolist() == []


def test_after_clear_it_begins_anew(transactions: ModuleType) -> None:
    t = transactions.Transactions()
    t.add(1, (1 << 64) - 1, 5, 7)
    t.clear()
    assert (t.count, t.ended) == (0, 0)
    t.add(2, 8, 9, 10)
    t.end(4)
    assert (t.sources[0], t.numbers[0], t.offsets[0], t.times[0], t.ends[0]) == (2, 8, 9, 10, 4)
