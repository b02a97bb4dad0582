from __future__ import annotations

import pytest

from datastores.mysql.server.replica_ids import ServerIds
from wormhole.model.errors import SourceUnavailable, UsageError


def test_each_is_lent_once() -> None:
    ids = ServerIds.parse("4001-4003", "shop")
    assert [ids.take() for _ in range(3)] == [4001, 4002, 4003]
    with pytest.raises(SourceUnavailable, match="4001-4003 are in use") as error:
        ids.take()
    assert "server_ids" in str(error.value.hint)
    ids.give_back(4002)
    assert ids.take() == 4002


def test_what_was_given_back_is_lent_last() -> None:
    ids = ServerIds(1, 3)
    ids.give_back(ids.take())
    assert [ids.take() for _ in range(3)] == [2, 3, 1]


def test_the_servers_own_id_is_never_lent() -> None:
    ids = ServerIds(1, 2)
    assert ids.take(avoid=1) == 2
    with pytest.raises(SourceUnavailable):
        ids.take(avoid=1)
    assert ids.take(avoid=7) == 1


def test_a_log_has_sixteen_of_its_own() -> None:
    def all_of(log: str) -> list[int]:
        ids = ServerIds.parse("", log)
        lent = [ids.take() for _ in range(16)]
        with pytest.raises(SourceUnavailable):
            ids.take()
        return lent

    ids = all_of("shop")
    assert ids == list(range(ids[0], ids[0] + 16)) == all_of("shop")
    assert 1_000_000_000 <= ids[0] < ids[-1] <= 2_000_000_000
    assert not set(ids) & set(all_of("shop-2"))


@pytest.mark.parametrize("text", ["1-1", "4294967295-4294967295", "1-65536"])
def test_ranges_at_the_limit(text: str) -> None:
    assert ServerIds.parse(text, "shop").take() == int(text.partition("-")[0])


@pytest.mark.parametrize("text", ["4001", "a-b", "-", "1-", "-5", "1-2-3", "1 - 2", "１-２", "1-99999999999"])
def test_what_is_no_range(text: str) -> None:
    with pytest.raises(UsageError, match="is no range"):
        ServerIds.parse(text, "shop")


@pytest.mark.parametrize("text", ["0-5", "5-4", "4294967296-4294967296", "1-65537"])
def test_what_is_no_usable_range(text: str) -> None:
    with pytest.raises(UsageError, match="no usable range"):
        ServerIds.parse(text, "shop")
