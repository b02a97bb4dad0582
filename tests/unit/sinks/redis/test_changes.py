"""What the sink of whole rows makes of updates."""

from __future__ import annotations

import pytest

from sinks.records.transactions import runs
from sinks.redis.changes import RowChange, RowEnvelope
from sinks.redis.keys import Keys
from subscriber_sdk.testing import body_of, read, update
from subscriber_sdk.testing.changes import Change
from wormhole.ports.dead_letters import open_parcel, wrap
from wormhole.wire.body import parse_body
from wormhole.wire.update import Batch


@pytest.mark.parametrize("change", [read("t", key=7, after={"a": 1}), update("t", key=7, after={"a": 1})])
def test_a_row_has_the_same_version_with_a_record_and_without(change: Change) -> None:
    """An existing row is newer than a change at its place, whichever of them is packed."""
    envelope = RowEnvelope(Keys("{table}:{key}", {}))
    updates = Batch(parse_body(body_of([change, change])), "s", 1, False, lambda _: change.schema).updates()
    (run,) = runs(updates)
    columns = envelope.columns("", run, updates)
    records = [RowChange.from_bytes(record.value or b"") for one in updates for record in envelope.records(one)]
    assert columns is not None
    assert columns.versions == [record.version.encode() for record in records]


@pytest.mark.parametrize("ends", [True, False])
def test_an_update_that_is_delivered_again_has_the_same_version(ends: bool) -> None:
    """Otherwise a later update of its transaction, or an existing row at its place, would be the older one."""
    envelope, change = RowEnvelope(Keys("{table}:{key}", {})), update("t", key=7, after={"a": 1})
    body = parse_body(body_of([change, change], ends=ends))
    for original in Batch(body, "s", 1, False, lambda _: change.schema).updates():
        again = open_parcel(wrap(original), "s")
        assert envelope.records(again) == envelope.records(original)
