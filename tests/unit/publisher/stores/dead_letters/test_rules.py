"""Letters as they are stored, and whose they are."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from publisher.stores.dead_letters.rules import check_epoch, letter_from_json, letter_to_json
from tests.support.letters import letter
from wormhole.model.errors import EpochRefused, MarkerStoreError

FLOW = ("app", "db1")


@pytest.mark.parametrize(
    "change",
    [
        {"position": "1/2"},
        {"position": None},
        {"rows": ["%"]},
        {"retrying": 1},
        {"id": 5},
        {"size": "x"},
        {"inside": None},
        {"index": "0"},
        {"parked_by": 5},
        *("", "[]", "{}", "nonsense"),
    ],
)
def test_what_is_damaged_is_reported_with_its_place(change: dict[str, object] | str) -> None:
    told, _ = letter(5)
    text = change if isinstance(change, str) else json.dumps({**json.loads(letter_to_json(told)), **change})
    with pytest.raises(MarkerStoreError, match=r"store\.x holds no valid parked update.*flow app/db1.*backup"):
        letter_from_json(FLOW, text, "store.x")


def test_only_the_present_epoch_changes_letters() -> None:
    check_epoch(FLOW, 3, 3)
    for stored in (2, 4, None):
        with pytest.raises(EpochRefused, match=r"epoch 3 are not changed.*app/db1"):
            check_epoch(FLOW, 3, stored)


def test_a_letter_of_an_earlier_release_is_anyones() -> None:
    told, _ = letter(5)
    record = json.loads(letter_to_json(told))
    del record["parked_by"]
    assert letter_from_json(FLOW, json.dumps(record), "x") == replace(told, parked_by="")
