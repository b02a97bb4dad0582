"""Reads the cases from ``conformance/cases`` (docs/conformance.md, "A case of the kit")."""

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
    """Every case, in the order of the files. A case of ``FILE.toml`` has the name ``FILE/NAME``. The client needs the
    feature FILE unless the case names another feature."""
    found = []
    for file in sorted(folder.glob("*.toml")):
        given = expanded(tomllib.loads(file.read_text(encoding="utf-8")))
        here = [*given.get("case", []), *_breaches(given.get("breaches", {}))]
        found += [{"feature": file.stem, **case, "name": f"{file.stem}/{case['name']}"} for case in here]
    return found


def _breaches(given: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Cases in which the publisher breaks the protocol: steps after ``begin``, and the text that the Goodbye
    contains."""
    begin = given.get("begin", ["open"])
    for name, (*steps, says) in given.items():
        if name != "begin":
            broken = [{**step, "unchecked": True} for step in steps[-1:]]
            yield {"name": name, "steps": [*begin, *steps[:-1], *broken, {"breach": says}]}


def expanded(given: Any) -> Any:
    """The data of a case with ``{copies = [what, times]}`` written out, and a recording's name replaced by its
    messages."""
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
