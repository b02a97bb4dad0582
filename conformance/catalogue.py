"""The cases, as they are in ``conformance/cases`` (docs/conformance.md, "A case of the kit"). Pure but for reading."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

__all__ = ["CASES", "cases", "expanded"]

CASES: Final = Path(__file__).parent / "cases"
_RECORDED: Final = Path(__file__).parent / "recorded"


def cases(folder: Path = CASES) -> list[dict[str, Any]]:
    """Every case, by file. A case of ``FILE.toml`` has the name ``FILE/NAME``, and needs the feature FILE unless it
    names another one."""
    found = []
    for file in sorted(folder.glob("*.toml")):
        given = expanded(tomllib.loads(file.read_text(encoding="utf-8")))
        here = [*given.get("case", []), *_breaches(given.get("breaches", {}))]
        found += [{"feature": file.stem, **case, "name": f"{file.stem}/{case['name']}"} for case in here]
    return found


def _breaches(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Cases in which the publisher breaks the protocol: steps after ``begin``, and what the last Goodbye names."""
    begin = given.get("begin", ["open"])
    for name, (*steps, says) in given.items():
        if name != "begin":
            broken = [{**step, "unchecked": True} for step in steps[-1:]]
            yield {"name": name, "steps": [*begin, *steps[:-1], *broken, {"breach": says}]}


def expanded(given: Any) -> Any:
    """The data with ``{copies = [what, times]}`` written out, and the messages of a recording in place of its name."""
    match given:
        case {"copies": [what, times], **others} if not others:
            return expanded(what) * times
        case {"recorded": str(name)}:
            return {"recorded": json.loads((_RECORDED / name).read_text(encoding="utf-8"))["messages"]}
        case dict():
            return {name: expanded(value) for name, value in given.items()}
        case list():
            return [*map(expanded, given)]
        case _:
            return given
