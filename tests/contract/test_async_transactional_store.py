"""The stores for ``async def`` handlers, without the kit: their drivers have threads and sockets of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from subscriber_sdk import NoticeKind, ShardNotice
from subscriber_sdk.subscriber import KeptMarker
from subscriber_sdk.testing import marker_at
from subscriber_sdk.transactional.shard import ShardTransactions
from tests.support.transactional import ASYNC_STORES, Target, run, target_of

# Drivers read the names of their files as they connect.
pytestmark = pytest.mark.allow_blocking
ASSIGNED = ShardNotice(NoticeKind.ASSIGNED, "s", 1, marker_at(0), application="a")


@pytest.fixture(params=list(ASYNC_STORES))
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Target]:
    yield from target_of(request, request.param, tmp_path, ASYNC_STORES)


async def totals(target: Target) -> dict[int, int]:
    return await asyncio.to_thread(lambda: target.totals)


async def added(connection: Any) -> None:
    await run(connection, "INSERT INTO totals VALUES (1, 1)")


async def test_one_commit_and_one_failure(target: Target) -> None:
    shard: ShardTransactions[Any] = ShardTransactions(target.new(), "s")

    async def failing(connection: Any) -> None:
        await run(connection, "INSERT INTO totals VALUES (2, 1)")
        raise ValueError("no")

    await shard.assigned(ASSIGNED)
    await shard.call(added)
    await shard.commit(marker_at(1))
    with pytest.raises(ValueError, match="no"):
        await shard.call(failing)
    await shard.rolled_back(marker_at(1))
    assert await shard.assigned(replace(ASSIGNED, epoch=2)) == KeptMarker(marker_at(1), 0)
    await shard.revoked()
    assert await totals(target) == {1: 1}


@pytest.mark.parametrize("target", [name for name in ASYNC_STORES if "sqlite" not in name], indirect=True)
async def test_a_callback_that_is_cancelled_in_a_statement_leaves_nothing(target: Target) -> None:
    """Its time is over while another transaction has the row. What comes again is counted once. SQLite has no such
    wait: only the begin of a transaction waits."""
    shard: ShardTransactions[Any] = ShardTransactions(target.new(timeout=5), "s")
    other: ShardTransactions[Any] = ShardTransactions(target.new(timeout=5), "t")
    await shard.assigned(ASSIGNED)
    await shard.call(added)
    await shard.commit(marker_at(1))
    await other.assigned(replace(ASSIGNED, shard="t"))

    async def changed(connection: Any) -> None:
        await run(connection, "UPDATE totals SET amount = amount + 1")

    await other.call(changed)
    waits = asyncio.create_task(shard.call(changed))
    done, _ = await asyncio.wait([waits], timeout=0.3)
    assert not done
    waits.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits
    await shard.rolled_back(marker_at(1))
    await other.rolled_back(marker_at(0))
    await shard.call(changed)
    await shard.commit(marker_at(2))
    await shard.revoked()
    await other.revoked()
    assert await totals(target) == {1: 2}
