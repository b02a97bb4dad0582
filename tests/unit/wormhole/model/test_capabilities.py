from __future__ import annotations

from wormhole.model.capabilities import Capabilities
from wormhole.model.values import Op


def test_a_datastore_that_says_nothing_can_all_that_a_filter_asks() -> None:
    default = Capabilities()
    assert default.row_before
    assert set(default.ops) == set(Op)
    assert not default.of_bytes
    assert not default.databases
