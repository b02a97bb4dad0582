"""The pytest plugin: a failed assertion of the suite shows both sides. A kind's test module defines ``harness``."""

from __future__ import annotations

import pytest

__all__: list[str] = []

pytest.register_assert_rewrite("sinks.testing.contract", "sinks.testing.story")
