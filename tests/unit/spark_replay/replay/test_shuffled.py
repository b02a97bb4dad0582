"""The three steps of a large range, one after the other as Spark runs them; on Spark itself: ``test_replay_jobs``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from random import Random
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_replay.replay import shuffled as module
from spark_replay.replay.shuffled import fold, in_order, split
from tests.unit.spark_replay.replay.test_keyed import as_in_files
from tests.unit.spark_replay.replay.test_latest import (
    CUTS,
    KEYLESS,
    SCHEMAS,
    Change,
    histories,
    latest,
    puts,
    with_keyless,
)
from wormhole.model.errors import ReplayError
from wormhole.model.values import Op

Row = Mapping[str, Any]


def steps(batches: Sequence[pa.RecordBatch], parts: int, chance: Random, *, by_values: bool = False) -> list[Row]:
    """Each batch in a slice of its own; what Spark moves comes in any order."""
    with patch.object(module, "rows_of", lambda _, chosen: chosen):
        slices: list[Any] = [module._Slice([batch], number << 32) for number, batch in enumerate(batches)]  # type: ignore[arg-type]
        rows = [one for each in slices for one in split(None, parts, each)]  # type: ignore[arg-type]
    chance.shuffle(rows)
    pieces = [
        piece for part in range(parts) for piece in fold(SCHEMAS, by_values, [one for one in rows if one[0] == part])
    ]
    chance.shuffle(pieces)
    return [row for batch in in_order(sorted(pieces, key=itemgetter(0))) for row in batch.to_pylist()]


@given(
    histories().map(itemgetter(1)) | histories(partial=False).map(itemgetter(1)) | puts() | with_keyless(),
    CUTS,
    st.integers(1, 4),
    st.booleans(),
    st.randoms(),
)
def test_the_rows_are_those_of_one_task(
    changes: list[Change], cuts: list[int], parts: int, by_values: bool, chance: Random
) -> None:
    found = steps(as_in_files(changes, cuts), parts, chance, by_values=by_values)
    expected = latest(changes, by_values=by_values)
    assert [(one["place"], one["update"], one["op"]) for one in found] == [
        (one["place"], one["update"], one["op"]) for one in expected
    ]


def test_of_a_key_that_changes_all_the_time_little_travels() -> None:
    changes = [Change(Op.UPDATE, 1, {"a": at, "b": 0}) for at in range(1000)]
    with patch.object(module, "rows_of", lambda _, chosen: chosen):
        [(_, (_, data))] = split(None, 5, module._Slice(as_in_files(changes, []), 0))  # type: ignore[arg-type]
    [batch] = module._from_bytes(data)
    assert batch.num_rows == 2


def test_rows_without_a_key_are_spread_over_the_parts() -> None:
    changes = [Change(Op.INSERT, 0, {"a": 1, "b": 1}, schema=KEYLESS) for _ in range(1000)]
    with patch.object(module, "rows_of", lambda _, chosen: chosen):
        found = list(split(None, 4, module._Slice(as_in_files(changes, []), 0)))  # type: ignore[arg-type]
    sizes = [sum(batch.num_rows for batch in module._from_bytes(data)) for _, (_, data) in found]
    assert sum(sizes) == 1000
    assert len(sizes) == 4
    assert max(sizes) < 400


def test_what_is_too_much_for_one_task_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST", 100)

    def endless() -> Iterator[tuple[int, module.Piece]]:
        while True:
            yield 0, (0, bytes(60))

    with pytest.raises(ReplayError, match="too few keys") as caught:
        list(fold(SCHEMAS, False, endless()))
    assert "--mode log" in str(caught.value.hint)
