"""A problem in words, and apart from it the next step."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["NO_PROBLEM", "Problem", "passing"]


_LINE: Final = re.compile(r"(?P<text>.*?)(?: \[(?P<code>[a-z]+(?:-[a-z]+)*)\])?(?:\. Next: (?P<hint>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """``text``: what is wrong, or why something waits; empty: nothing. ``hint``: the next step, on several lines where
    it has statements to paste; empty: none. ``code``: the stable name of the problems with this remedy
    (:mod:`wormhole.problems`); empty: it was reported by an earlier release.
    """

    text: str = ""
    hint: str = ""
    code: str = ""

    @classmethod
    def parsed(cls, line: str) -> Problem:
        """What ``str`` made a line of: for what reaches this process as text alone."""
        found = _LINE.fullmatch(line)
        return cls(line) if found is None else cls(found["text"], found["hint"] or "", found["code"] or "")

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        """On one line, as in a log."""
        text = f"{self.text} [{self.code}]" if self.code else self.text
        return f"{text}. Next: {' '.join(self.hint.splitlines())}" if self.hint else text


NO_PROBLEM: Final = Problem()


def passing(text: str) -> Problem:
    """What ends by itself within seconds, and no action is needed."""
    return Problem(text, code="in-progress") if text else NO_PROBLEM
