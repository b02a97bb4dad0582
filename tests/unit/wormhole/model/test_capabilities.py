from __future__ import annotations

from wormhole.model.capabilities import Capabilities
from wormhole.model.values import Op


def test_a_datastore_without_capabilities_of_its_own_has_all() -> None:
    default = Capabilities()
    assert default.row_before
    assert set(default.ops) == set(Op)
    assert not default.of_bytes
    assert not default.databases
