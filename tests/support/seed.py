"""The seed of random rounds: always the same in ``make test``, whose result must not be luck; a new one in each
soak."""

from __future__ import annotations

import os
import random
from typing import Final

__all__ = ["SEED"]

_GIVEN: Final = int(os.environ.get("WORMHOLE_SEED", "0"))
_DRAWN: Final = random.SystemRandom().randrange(1, 1 << 31) if "WORMHOLE_ROUNDS" in os.environ else 20261122

SEED: Final = _GIVEN or _DRAWN
"""Rounds print it; ``WORMHOLE_SEED`` repeats them."""
