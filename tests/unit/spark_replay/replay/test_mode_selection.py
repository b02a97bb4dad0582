from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from spark_replay.replay import mode_selection
from spark_replay.replay.estimate import Estimate
from spark_replay.replay.flow_plans import FlowPlan, filters, plan
from tests.support.archives import marker_at
from tests.support.replay_plans import archived, flow, seen, setting, wish
from wormhole.formats import ValueFormats
from wormhole.model.errors import ReplayError

SPARK: Any = SimpleNamespace()


def decided(folder: Path, wanted: str, monkeypatch: pytest.MonkeyPatch, **plans: Any) -> list[FlowPlan]:
    store = archived(folder)
    counted = {"a": Estimate("a", 10_000_000, 100, 1), "b": Estimate("b", 10, 100, 9)}
    monkeypatch.setattr(mode_selection, "estimate", lambda *_: counted)
    asked = wish(mode=wanted)
    looked = [seen(flow("a", marker_at(0)), flow("b", marker_at(0)))]
    found = plan(asked, setting(store), looked)
    for one in found:
        for name, value in plans.items():
            setattr(one, name, value)
    mode_selection.decide(
        SPARK, asked, setting(store), filters(asked, setting(store), ValueFormats()), found, counts=False
    )
    return sorted(found, key=lambda one: one.flow)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [("log", ["log", "log"]), ("latest", ["latest", "latest"]), ("auto", ["latest", "log"])],
)
def test_each_flow_gets_its_mode_and_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str, expected: list[str]
) -> None:
    found = decided(tmp_path, mode, monkeypatch)
    assert [one.mode for one in found] == expected
    assert all(one.reason for one in found)


def test_what_was_begun_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = decided(tmp_path, "auto", monkeypatch, begun=True, mode="latest")
    assert [(one.mode, one.reason) for one in found] == [("latest", "as it was begun")] * 2


def test_an_archive_that_lacks_a_part_gives_every_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = decided(tmp_path, "auto", monkeypatch, lacks="it lacks a part")
    assert [(one.mode, one.reason) for one in found] == [("log", "every change: it lacks a part")] * 2
    (tmp_path / "latest").mkdir()
    with pytest.raises(ReplayError, match=r"cannot stand for all of them: \w: it lacks a part") as caught:
        decided(tmp_path / "latest", "latest", monkeypatch, lacks="it lacks a part")
    assert "--mode auto" in str(caught.value.hint)


def test_a_begun_one_that_cannot_go_on_names_a_step_that_is_possible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(*_: Any, **__: Any) -> None:
        raise ReplayError("it cannot be", hint="take --mode auto")

    monkeypatch.setattr(mode_selection, "choose", refuses)
    with pytest.raises(ReplayError, match="it cannot be") as caught:
        decided(tmp_path, "auto", monkeypatch, begun=True, mode="latest")
    assert "--cancel r" in str(caught.value.hint)
