"""Power cuts between any two durable steps of a disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

__all__ = ["PowerCut", "cut_after", "steps_left"]


class PowerCut(BaseException):
    """Nothing of ours runs any more."""


def steps_left(steps: int) -> Callable[..., None]:
    """Something to call at each step: the one after so many is a power cut."""
    left = steps

    def step(*_: object) -> None:
        nonlocal left
        left -= 1
        if left < 0:
            raise PowerCut

    return step


def cut_after(steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same at each link, sync and removal of a disk."""
    step = steps_left(steps)

    def cut(act: Callable[..., Any]) -> Callable[..., Any]:
        def until_it_goes(*words: Any, **more: Any) -> Any:
            step()
            return act(*words, **more)

        return until_it_goes

    for owner, name in ((os, "fsync"), (os, "link"), (Path, "unlink")):
        monkeypatch.setattr(owner, name, cut(getattr(owner, name)))
