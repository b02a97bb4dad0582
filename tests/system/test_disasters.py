"""Every row of docs/disasters.md, done to real processes: it is reported, the way on works as written, and nothing is
lost unreported.

``make test`` takes a few rows, ``make soak`` all of them. ``WORMHOLE_DISASTERS=<text>`` chooses those whose name
contains it. Seconds that were measured go to ``build/disasters.json``, from which ``scripts/disasters.py`` writes the
page.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from scripts.disasters import MEASURED
from tests.system.harness import archive_disasters as archives
from tests.system.harness.disaster_table import CELLS, DISASTERS, STEPS, THINGS, Cell, Seen, Sign
from tests.system.harness.scene import Scene, state_of

CHOSEN: Final = os.environ.get("WORMHOLE_DISASTERS", "")
LONG: Final = "WORMHOLE_ROUNDS" in os.environ or bool(CHOSEN)

Say = Callable[[str], None]


def test_no_cell_is_silent_or_without_a_way_on() -> None:
    """Each thing with each disaster has a row; it reports something, or proves that nothing has to be reported."""
    assert {(cell.thing, cell.disaster) for cell in CELLS} == {(thing, one) for thing in THINGS for one in DISASTERS}
    for cell in CELLS:
        if cell.setting is None:
            assert cell.what
            continue
        assert cell.signs, cell.name
        nothing = [sign for sign in cell.signs if sign.seen is Seen.NOTHING]
        assert not nothing or len(cell.signs) == 1, cell.name
        for step in cell.way:
            assert step in STEPS or step.startswith("wormholectl "), f"{cell.name}: no function does the step {step!r}"


@pytest.mark.parametrize(
    "cell",
    [one for one in CELLS if one.setting is not None and (LONG or one.quick) and CHOSEN in one.name],
    ids=lambda cell: cell.name,
)
def test_a_disaster(cell: Cell, tmp_path: Path, say: Say) -> None:
    assert cell.setting is not None
    assert cell.do is not None
    scene = Scene(tmp_path, cell.setting)
    try:
        scene.start()
        cell.do(scene)
        began = time.monotonic()
        for sign in cell.signs:
            await_sign(scene, sign)
        reported = time.monotonic() - began
        began = time.monotonic()
        for step in cell.way:
            take(scene, step)
        scene.commit(1)
        await_fresh(scene, cell)
        back = time.monotonic() - began
        check(scene, cell)
    finally:
        scene.close()
    say(f"{cell.name}: reported in {reported:.1f} s, delivering {back:.1f} s after that")
    keep(cell.name, reported, back)


def await_sign(scene: Scene, sign: Sign) -> None:
    """Until it is seen where the row says."""
    seen: dict[Seen, Callable[[], bool]] = {
        Seen.LOSS: lambda: any(loss.kind == sign.text for loss in scene.losses),
        Seen.HELD: lambda: _is_held(scene, sign.text),
        Seen.DOCTOR: lambda: _answers(scene, "wormholectl doctor", sign.text, bad=True),
        Seen.WHY_LAG: lambda: _answers(scene, "wormholectl why-lag app/db1", sign.text),
        Seen.COMMAND: lambda: _answers(scene, sign.at, sign.text),
        Seen.ENDED: lambda: (
            (one := scene.process(sign.at)).ended and sign.text in one.tail() and "next: " in one.tail()
        ),
        Seen.LOG: lambda: sign.text in scene.process(sign.at).output.read_text(errors="replace"),
        Seen.NOTHING: lambda: True,
    }

    def so() -> bool:
        scene.gather()
        return seen[sign.seen]()

    scene.await_true(so, lambda: f"not seen: {sign}")


def _is_held(scene: Scene, text: str) -> bool:
    flow = scene.flow()
    return flow is not None and flow["state"] == "held" and text in flow["cause"]


def _answers(scene: Scene, command: str, text: str, *, bad: bool = False) -> bool:
    answer = scene.ctl(command)
    return text in answer.text and (answer.code != 0 or not bad)


def take(scene: Scene, step: str) -> None:
    """One step of the way on, as the page says it.

    A command that is refused only now is repeated, as its answer asks for."""
    if step in STEPS:
        STEPS[step](scene)
        return
    scene.await_true(lambda: scene.ctl(step).code == 0, lambda: f"refused: {step}")
    if " markers set " in step:
        scene.passed_over()


def await_fresh(scene: Scene, cell: Cell) -> None:
    """Until what was committed last is delivered, and the flow is live."""
    fresh = scene.commits[-1].number
    if cell.archived:
        scene.await_true(
            lambda: archives.archived(scene).get(fresh) == 1, lambda: f"archived: {archives.archived(scene)}"
        )
    else:
        scene.await_delivered([fresh])
        scene.await_true(lambda: state_of(scene) == "live", lambda: "the flow is not live")


def check(scene: Scene, cell: Cell) -> None:
    """Nothing that survives is missing, unless it was reported; and no epoch has two owners."""
    if cell.archived:
        archives.await_archived(scene)
        answer = scene.ctl("wormholectl archive verify --deep")
        assert answer.code == 0, answer.text
    elif not scene.losses and not scene.passed:
        scene.await_delivered()
    assert not scene.unexplained(), f"lost and unreported: {scene.unexplained()}\n{scene.told()}"
    assert not scene.never & scene.received.keys(), "what never happened was delivered"
    shared = {epoch: owners for epoch, owners in scene.owners.items() if len(owners) > 1}
    assert not shared, f"epochs with several owners: {shared}\n{scene.told()}"


def keep(name: str, reported: float, back: float) -> None:
    """Note the seconds for the page."""
    MEASURED.parent.mkdir(exist_ok=True)
    known = json.loads(MEASURED.read_text()) if MEASURED.exists() else {}
    known[name] = [round(reported, 1), round(back, 1)]
    MEASURED.write_text(json.dumps(known, indent=1, sort_keys=True))
