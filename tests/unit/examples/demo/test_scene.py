"""Who waits for the scene is told what went wrong, and at once if waiting cannot help."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.demo.processes import DemoError
from examples.demo.scene import NotInTimeError, Scene


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path, lambda *_: None)


async def test_what_does_not_happen_is_named(scene: Scene) -> None:
    with pytest.raises(NotInTimeError, match=r"the moon's rise did not happen within 0\.01 s"):
        await scene.until(lambda: False, 0.01, "the moon's rise")


async def test_a_data_loss_ends_the_wait(scene: Scene) -> None:
    scene.event("cache-1", {"event": "loss", "message": "updates 3 to 5 are gone"})
    with pytest.raises(DemoError, match="cache-1 was told of a data loss: updates 3 to 5 are gone") as caught:
        await scene.until(lambda: False, 3600.0, "anything")
    assert not isinstance(caught.value, NotInTimeError)


async def test_the_writer_says_what_is_left(scene: Scene) -> None:
    assert told(scene) == (None, None, False)
    scene.event("writer", {"event": "chore", "what": "flushed", "left": 1})
    scene.event("writer", {"event": "finished", "updates": 12})
    assert told(scene) == (1, 12, False)
    scene.event("writer", {"event": "closed"})
    assert told(scene) == (1, 12, True)


def told(scene: Scene) -> tuple[int | None, int | None, bool]:
    return scene.chores_left, scene.finished, scene.closed
