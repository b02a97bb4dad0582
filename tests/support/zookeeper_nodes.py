"""What a test does to nodes behind a coordinator's back."""

from __future__ import annotations

from typing import Any

from wormhole.coordination.zookeeper import ZooKeeperCoordinator

__all__ = ["delete_together"]


async def delete_together(client: ZooKeeperCoordinator, *paths: str) -> None:
    """Delete the nodes at once: no other client sees a part of that."""

    def ask(zookeeper: Any) -> Any:
        transaction = zookeeper.transaction()
        for path in paths:
            transaction.delete(path)
        return transaction.commit_async()

    assert await client._session.call(f"delete {paths}", ask) == [True] * len(paths)
