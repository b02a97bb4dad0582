"""A problem in words, with the next step as a separate field."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

__all__ = ["NO_PROBLEM", "Problem", "passing"]


_LINE: Final = re.compile(r"(?P<text>.*?)(?: \[(?P<code>[a-z]+(?:-[a-z]+)*)\])?(?:\. Next: (?P<hint>.*))?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem.

    ``text``: what is wrong, or why something waits; empty: there is no problem. ``hint``: the next step, on several
    lines if it has statements to paste; empty: none. ``code``: the stable name of the problems with this remedy
    (:mod:`wormhole.problems`); empty: an earlier release reported it.
    """

    text: str = ""
    hint: str = ""
    code: str = ""

    @classmethod
    def parsed(cls, line: str) -> Problem:
        """The problem from its line, as ``str`` writes it, for a problem that reaches this process only as text."""
        found = _LINE.fullmatch(line)
        return cls(line) if found is None else cls(found["text"], found["hint"] or "", found["code"] or "")

    def __bool__(self) -> bool:
        return bool(self.text)

    def __str__(self) -> str:
        """The problem on one line, as in a log."""
        text = f"{self.text} [{self.code}]" if self.code else self.text
        return f"{text}. Next: {' '.join(self.hint.splitlines())}" if self.hint else text


NO_PROBLEM: Final = Problem()


def passing(text: str) -> Problem:
    """A problem that ends by itself within seconds and needs no action."""
    return Problem(text, code="in-progress") if text else NO_PROBLEM
