"""What every form checks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from wormhole.config import ApplicationConfig
from wormhole.coordination.port import CandidateInfo, LogGroup, PublisherInfo, SubscriberInfo
from wormhole.coordination.rules import (
    all_loopback,
    as_seen_by_others,
    candidate_taken,
    check_subscriber,
    is_predecessor,
    log_taken,
    subscriber_taken,
)
from wormhole.model.errors import ConfigError

APPLICATION = ApplicationConfig(name="cache", dataset="shop", start="latest", allow=("a",))
PUBLISHER = PublisherInfo("shop", "main", "db1", "host", 7, "127.0.0.1:7000", 1.5)


def test_one_address_elsewhere_is_enough_for_others_to_be_able_to_come() -> None:
    assert all_loopback(["127.0.0.1:1", "localhost:2"])
    assert not all_loopback(["127.0.0.1:1", "zk2:2"])


def test_a_loopback_address_is_reported_only_where_all_are_on_this_machine() -> None:
    info = SubscriberInfo("cache", "a", "127.0.0.1:7001")
    check_subscriber(info, APPLICATION, service_on_loopback=True)
    check_subscriber(SubscriberInfo("cache", "a", "10.0.0.1:7001"), APPLICATION, service_on_loopback=False)
    with pytest.raises(ConfigError, match=r"advertises 127\.0\.0\.1:7001") as caught:
        check_subscriber(info, APPLICATION, service_on_loopback=False)
    assert "WORMHOLE_ADVERTISE" in str(caught.value.hint)


def test_only_allowed_subscribers() -> None:
    with pytest.raises(ConfigError, match="not in the allow list of application cache"):
        check_subscriber(SubscriberInfo("cache", "b", "h:1"), APPLICATION, service_on_loopback=True)


def test_an_admin_address_on_loopback_is_left_out_for_others() -> None:
    assert as_seen_by_others(PUBLISHER, PUBLISHER.address, service_on_loopback=True) is PUBLISHER
    assert as_seen_by_others(PUBLISHER, PUBLISHER.address, service_on_loopback=False).address == ""


def test_who_has_it_is_said() -> None:
    assert "shop/main/db1" in str(log_taken(PUBLISHER, "process 9 on h"))
    assert "process 9 on h" in str(log_taken(PUBLISHER, "process 9 on h"))
    assert "id of its own" in str(subscriber_taken(SubscriberInfo("cache", "a", "h:1"), "x"))
    candidate = CandidateInfo("main", "host", 7, "127.0.0.1:7000", 1.5, 0)
    text = str(candidate_taken(LogGroup("shop", "@failover", "db1"), candidate, "process 9"))
    assert "shop/@failover/db1 has another live candidate main@host: process 9" in text
    assert as_seen_by_others(candidate, candidate.address, service_on_loopback=False).address == ""


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (replace(PUBLISHER, address="h:1"), True),  # its own, of an earlier session
        (replace(PUBLISHER, pid=8, started=2.5, owner="boot/1:2"), True),  # it held the lock that is held here now
        (replace(PUBLISHER, pid=8, started=2.5, owner="boot/1:3"), False),
        (replace(PUBLISHER, pid=8, started=2.5), False),  # an earlier release, or markers elsewhere
        (replace(PUBLISHER, host="other"), False),
    ],
)
def test_which_entry_a_dead_predecessor_left(entry: PublisherInfo, expected: bool) -> None:
    assert is_predecessor(entry, replace(PUBLISHER, owner="boot/1:2")) is expected
