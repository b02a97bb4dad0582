"""The cache forgets what changed, once or twice."""

from __future__ import annotations

from examples.cache_invalidation import CacheInvalidator
from subscriber_sdk.testing import Kit, update


def test_the_cache_forgets_what_changed(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(CacheInvalidator(cache := {7: "old", 8: "kept"}))
    flow.commit(update("shop.users", key=7, before={"email": "a"}, after={"email": "b"}))
    flow.crash_and_redeliver()
    assert cache == {8: "kept"}
    assert flow.datamarker == flow.end
