"""Writes go together in requests of which ZooKeeper takes every one."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest
from kazoo.client import TransactionRequest
from kazoo.protocol.serialization import Create, Delete, SetData, Transaction
from kazoo.security import OPEN_ACL_UNSAFE

from publisher.stores.guarded_client import MOST_BYTES, Fill, GuardedClient, TooLargeError, creating, deleting, setting
from wormhole.config import CoordinatorConfig
from wormhole.coordination.access import Access, digest_id
from wormhole.coordination.kazoo_client import acl_of
from wormhole.coordination.records import Paths

CLAIM = "/wormhole/logs/shop/@failover/db1/claims/c1"
PATHS = Paths("/wormhole")
ACCESS = Access(digest_id(f"operator:{'o' * 40}"), digest_id(f"publisher:{'p' * 40}"))
HEADER = 8
WELL_BELOW = 500_000


class Answer:
    def __init__(self, results: Sequence[object]) -> None:
        self._results = results

    def get(self, timeout: float) -> Sequence[object]:
        return self._results


class Request(TransactionRequest):  # type: ignore[misc]
    """Keeps what is sent."""

    def create(self, path: str, value: bytes = b"", acl: Any = None, **options: Any) -> None:
        super().create(path, value, [*acl_of(ACCESS, PATHS, path), *OPEN_ACL_UNSAFE], **options)

    def commit_async(self) -> Answer:
        self.client.sent.append(self.operations)
        return Answer([True] * len(self.operations))


class Kazoo:
    connected = True
    chroot = ""
    default_acl = None
    logger = logging.getLogger(__name__)

    def __init__(self) -> None:
        self.sent: list[list[Any]] = []

    def transaction(self) -> Request:
        return Request(self)

    def sizes(self) -> list[int]:
        """Bytes of each request, as kazoo sends it."""
        return [HEADER + len(Transaction(operations).serialize()) for operations in self.sent]


@pytest.fixture
def kazoo() -> Kazoo:
    return Kazoo()


@pytest.fixture
def client(kazoo: Kazoo) -> GuardedClient:
    client = GuardedClient(CoordinatorConfig(zookeeper="127.0.0.1:1/wormhole"))
    client.kazoo = kazoo
    client.guard(lambda: CLAIM)
    return client


def path(number: int) -> str:
    return PATHS.marker("größer", f"db1.{number}")


def sets(number: int, size: int) -> Fill:
    return setting(path(number), bytes(size), 7)


def creates(number: int, size: int) -> Fill:
    return creating(path(number), bytes(size))


def written(operations: Sequence[Any]) -> list[str]:
    """The paths, without the claim's."""
    assert operations[0].path == CLAIM
    return [operation.path for operation in operations[1:]]


@pytest.mark.parametrize("write", [sets, creates])
def test_each_request_is_well_below_the_limit_and_well_filled(client: GuardedClient, kazoo: Kazoo, write: Any) -> None:
    fills = [write(number, 11_700) for number in range(300)]
    assert list(client.transact_grouped("store", fills)) == [[]] * 300
    assert [name for operations in kazoo.sent for name in written(operations)] == [path(n) for n in range(300)]
    assert max(kazoo.sizes()) <= WELL_BELOW
    assert min(kazoo.sizes()[:-1]) > WELL_BELOW / 2


def test_small_writes_go_together_up_to_a_number(client: GuardedClient, kazoo: Kazoo) -> None:
    assert list(client.transact_grouped("store", [sets(number, 10) for number in range(250)])) == [[]] * 250
    assert [len(written(operations)) for operations in kazoo.sent] == [100, 100, 50]


def test_what_one_writes_is_in_one_request(client: GuardedClient, kazoo: Kazoo) -> None:
    def with_pages(number: int) -> Fill:
        def fill(transaction: Any) -> None:
            sets(number, 100_000)(transaction)
            creates(1000 + number, 100_000)(transaction)
            deleting(path(2000 + number))(transaction)

        return fill

    assert list(client.transact_grouped("store", map(with_pages, range(5)))) == [[]] * 5
    kinds = [[type(operation) for operation in operations[1:]] for operations in kazoo.sent]
    assert all(some == [SetData, Create, Delete] * (len(some) // 3) for some in kinds)
    assert max(kazoo.sizes()) <= WELL_BELOW


def test_one_that_is_too_large_alone_is_not_sent_and_the_others_are(client: GuardedClient, kazoo: Kazoo) -> None:
    fills = [sets(0, 10), sets(1, 1_400_000), sets(2, 900_000), sets(3, 10)]
    results = list(client.transact_grouped("store", fills))
    assert [bool(failures) for failures in results] == [False, True, False, False]
    (error,) = results[1]
    assert isinstance(error, TooLargeError)
    assert error.size > 1_400_000
    assert [name for operations in kazoo.sent for name in written(operations)] == [path(0), path(2), path(3)]


@pytest.mark.parametrize("claim", ["", CLAIM])
def test_the_limit_is_of_all_that_is_sent(client: GuardedClient, kazoo: Kazoo, claim: str) -> None:
    client.guard(lambda: claim)
    client.transact("store", sets(1, 0))
    room = MOST_BYTES - kazoo.sizes()[0]
    assert client.transact("store", sets(1, room)) == []
    assert kazoo.sizes()[1] == MOST_BYTES
    with pytest.raises(TooLargeError, match=r"store: .* 1,000,001 bytes; ZooKeeper takes 1,000,000 at most"):
        client.transact("store", sets(1, room + 1))
    with pytest.raises(TooLargeError):
        client.transact_all("store", [sets(2, 1), sets(1, room + 1)])
    assert len(kazoo.sent) == 2


def test_rights_of_nodes_count(client: GuardedClient, kazoo: Kazoo) -> None:
    """They are known where the request is made; here there is room for them."""

    def many(size: int) -> Fill:
        def fill(transaction: Any) -> None:
            for number in range(1_000):
                creates(number, size)(transaction)

        return fill

    client.transact("store", many(0))
    room = (MOST_BYTES - kazoo.sizes()[0]) // 1_000
    with pytest.raises(TooLargeError):
        client.transact("store", many(room + 1))
    assert client.transact("store", many(room - 256)) == []
