"""Which publisher is meant (what the stream makes of it: test_session)."""

from __future__ import annotations

import pytest

from subscriber_sdk.greeting import refusal_of
from wormhole.wire.v1 import push_pb2

Goodbye = push_pb2.Goodbye


def hello(**fields: object) -> push_pb2.Hello:
    given: dict[str, object] = {"min_version": 1, "max_version": 2, "application": "app", "dataset": "shop", **fields}
    return push_pb2.Hello(**given)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "reason", "named"),
    [
        ({}, None, ""),
        ({"subscriber": "one"}, None, ""),
        ({"max_version": 9}, None, ""),
        ({"min_version": 3, "max_version": 4}, Goodbye.VERSION, "versions 3 to 4"),
        ({"application": "other"}, Goodbye.WRONG_ADDRESS, "other/ was meant"),
        ({"subscriber": "two"}, Goodbye.WRONG_ADDRESS, "app/two was meant"),
    ],
)
def test_who_is_meant(fields: dict[str, object], reason: Goodbye.Reason | None, named: str) -> None:
    refusal = refusal_of(hello(**fields), (1, 2), "app", "one")
    if reason is None:
        assert refusal is None
        return
    assert refusal is not None
    assert refusal[0] == reason
    assert named in refusal[1]
    assert refusal[2]
