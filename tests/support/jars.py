"""Pinned jars that only tests use: of this environment, from the user's cache, or fetched by Maven."""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from scripts import pinned_jars
from scripts.compiled_cache import place
from scripts.steps import VENV

__all__ = ["folder"]

_KEPT: Final = VENV / "share" / "wormhole"


@cache
def folder(pins: Path, name: str, title: str) -> Path:
    """The folder of the jars that the file ``pins`` lists. Skips the test, naming ``title``, where they cannot be
    had."""
    text = pins.read_text()
    kept = Path(_KEPT, f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}")
    if not kept.exists():
        wanted, cached = pinned_jars.pins(text), place(os.environ).with_name(name)
        _KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=_KEPT) as made:
            draft = Path(made, "jars")
            if pinned_jars.take(cached, draft, wanted):
                if problem := pinned_jars.fetch(draft, wanted):
                    pytest.skip(f"no {title}: {problem}")
                pinned_jars.take(draft, cached, wanted)
            with contextlib.suppress(OSError):  # another process was first
                draft.rename(kept)
    return kept
