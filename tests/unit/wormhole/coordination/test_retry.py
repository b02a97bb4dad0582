"""Joining during an outage."""

from __future__ import annotations

import logging

import pytest

from wormhole.coordination.port import Registration
from wormhole.coordination.retry import retry_during_outage
from wormhole.model.errors import ConfigError, CoordinationLost


class Entry:
    held = True
    exclusive = True

    async def close(self) -> None:
        """Nothing to withdraw."""


async def test_an_outage_is_ridden_out_and_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    failures = [CoordinationLost("away"), CoordinationLost("away")]
    made = Entry()

    async def register() -> Registration:
        if failures:
            raise failures.pop()
        return made

    with caplog.at_level(logging.WARNING):
        assert await retry_during_outage(register, "subscriber a") is made
    (record,) = caplog.records
    assert "subscriber a waits: away" in record.getMessage()


async def test_a_refusal_is_no_outage() -> None:
    async def register() -> Registration:
        raise ConfigError("taken")

    with pytest.raises(ConfigError, match="taken"):
        await retry_during_outage(register, "subscriber a")
