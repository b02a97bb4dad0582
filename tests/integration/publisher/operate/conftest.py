"""What operators change, of a publisher that knows its flow."""

from __future__ import annotations

import pytest

from publisher.operate.control import Control
from publisher.publisher import Publisher
from tests.integration.publisher.operate.changes import served


@pytest.fixture
async def control(publisher: Publisher) -> Control:
    return await served(publisher)
