"""Credit of all flows together, and what a newer epoch does to an older one (more in test_dispatch)."""

from __future__ import annotations

from subscriber_sdk import Subscriber, Update
from subscriber_sdk.options import Options
from subscriber_sdk.shards import Shards
from subscriber_sdk.testing import ScriptedPublisher, frames, marker_at


class Idle(Subscriber):
    async def on_update(self, update: Update) -> None:
        pass


async def test_flows_share_one_budget_and_a_later_one_always_gets_some() -> None:
    options = Options(application="app", id="one", listen="127.0.0.1:1", credit=1 << 20, buffer=4 << 20)
    shards = Shards(Idle(), options)
    publisher = ScriptedPublisher(shards, options)
    publisher.send(frames.hello("app"))
    for flow in range(1, 21):
        publisher.send(frames.assign(flow, 1, "app", f"s{flow}", marker_at(0)))
    await shards.settled()
    granted = [frame.accepted.credit for frame in publisher.take("accepted")]
    assert granted[0] == 1 << 20
    assert granted == sorted(granted, reverse=True)
    assert granted[-1] == 64 << 10
    assert sum(granted) <= (4 << 20) + 20 * (64 << 10)
    for flow in range(1, 21):
        publisher.send(frames.revoke(flow, 1))
    await shards.settled()
    publisher.send(frames.assign(99, 2, "app", "s1", marker_at(0)))
    await shards.settled()
    assert publisher.take("accepted")[0].accepted.credit == 1 << 20
    await shards.close()


async def test_the_same_epoch_again_takes_over() -> None:
    """A publisher that lost the stream and did not change owner may dial with the epoch it has."""
    options = Options(application="app", id="one", listen="127.0.0.1:1")
    shards = Shards(Idle(), options)
    for _ in range(2):
        publisher = ScriptedPublisher(shards, options)
        publisher.send(frames.hello("app"), frames.assign(1, 3, "app", "s", marker_at(0)))
        await shards.settled()
        assert publisher.take("accepted")
    assert [worker.epoch for worker in shards.workers()] == [3]
    await shards.close()


async def test_settled_returns_at_once_without_flows() -> None:
    shards = Shards(Idle(), Options(application="app", listen="127.0.0.1:1"))
    await shards.settled()
    assert await shards.leave(1.0)
    await shards.close()
