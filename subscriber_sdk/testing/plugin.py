"""The pytest plugin: the fixture ``wormhole_kit`` (docs/testing.md)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subscriber_sdk.testing.kit import Kit

__all__ = ["wormhole_kit"]


@pytest.fixture
def wormhole_kit() -> Iterator[Kit]:
    """Drives a subscriber through commits, crashes, revocations and failures, without a server and without sleeping."""
    kit = Kit()
    try:
        yield kit
    finally:
        kit.close()
