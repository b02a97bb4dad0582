"""Where a publisher announces that it is dialled."""

from __future__ import annotations

import pytest

from publisher.push.attach_service import attach_point
from wormhole.config import PublisherConfig


@pytest.mark.parametrize(
    ("listen", "advertised", "shown"),
    [
        ("db-1:7490", "", "db-1:7490"),
        ("0.0.0.0:7490", "", ""),
        ("[::]:7490", "", ""),
        ("127.0.0.1:0", "db-1", ""),
        ("0.0.0.0:7490", "db-1", "db-1:7490"),
        ("0.0.0.0:7490", "db-1:443", "db-1:443"),
        ("[::]:7490", "[2001:db8::7]", "[2001:db8::7]:7490"),
        ("[::]:7490", "[2001:db8::7]:443", "[2001:db8::7]:443"),
    ],
)
def test_the_address_from_outside(listen: str, advertised: str, shown: str) -> None:
    settings = PublisherConfig(attach_listen=listen, attach_advertise=advertised, token_listen="0.0.0.0:7491")
    point = attach_point(settings, "db1", "main@db-1", tls=False)
    assert (point.address, point.token_address) == (shown, shown)


def test_a_port_from_outside_stands_for_the_first_listener_alone() -> None:
    settings = PublisherConfig(attach_listen="0.0.0.0:7490", attach_advertise="db-1:443", token_listen="0.0.0.0:7491")
    point = attach_point(settings, "db1", "main@db-1", tls=True)
    assert (point.address, point.token_address) == ("db-1:443", "db-1:7491")
