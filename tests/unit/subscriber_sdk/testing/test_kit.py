"""What the kit itself promises (that it drives flows rightly is tested with them, in test_dispatch)."""

from __future__ import annotations

import asyncio

import pytest

from subscriber_sdk import NoticeKind, ShardNotice, Subscriber, Update
from subscriber_sdk.testing import Kit, update
from wormhole.model.errors import UsageError


class Noting(Subscriber):
    def __init__(self) -> None:
        self.seen: list[tuple[str, bool, int]] = []
        self.notices: list[NoticeKind] = []

    async def on_update(self, update: Update) -> None:
        self.seen.append((update.id, update.replayed, update.epoch))

    async def on_shard_notice(self, notice: ShardNotice) -> None:
        self.notices.append(notice.kind)


def test_a_crash_redelivers_the_last_transactions(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Noting())
    for key in (1, 2, 3):
        flow.commit(update("t", key=key))
    subscriber.seen.clear()
    flow.crash_and_redeliver(transactions=2)
    assert subscriber.seen == [("test:2:0", True, 2), ("test:3:0", True, 2)]
    # A process that dies is not told that it loses its shards.
    assert subscriber.notices == [NoticeKind.ASSIGNED, NoticeKind.ASSIGNED]


def test_a_cut_connection_is_dialled_again_where_it_stood(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(subscriber := Noting())
    flow.commit(update("t", key=1))
    flow.cut()
    flow.commit(update("t", key=2))
    assert len(subscriber.seen) == 1
    flow.assign()
    assert subscriber.seen[1:] == [("test:2:0", True, 2)]
    assert subscriber.notices == [NoticeKind.ASSIGNED, NoticeKind.REVOKED, NoticeKind.ASSIGNED]


def test_two_shards_are_independent(wormhole_kit: Kit) -> None:
    one, two = Noting(), Noting()
    first, second = wormhole_kit.attach(one, shard="a"), wormhole_kit.attach(two, shard="b")
    first.commit(update("t", key=1))
    assert (first.updates, second.updates) == (1, 0)
    assert "1/1/1" in repr(first)


async def test_inside_a_running_loop_it_says_what_to_do(wormhole_kit: Kit) -> None:
    await asyncio.sleep(0)
    with pytest.raises(UsageError, match="plain def"):
        wormhole_kit.attach(Noting())


def test_a_shard_that_is_away_cannot_be_revoked(wormhole_kit: Kit) -> None:
    flow = wormhole_kit.attach(Noting())
    flow.revoke()
    with pytest.raises(UsageError, match="assign"):
        flow.revoke()


def test_closing_twice_is_fine() -> None:
    kit = Kit()
    kit.attach(Noting())
    kit.close()
    kit.close()
