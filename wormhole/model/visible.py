"""Makes text of a peer safe to show: nothing in it can control a terminal or forge a line of a log. Pure.

Names, values, error texts and reports come from databases, subscribers, ZooKeeper and archives. A control character in
one of them could move the cursor, set the window's title or reorder the text (ECMA-48; Unicode UAX #9). So it is shown
as its escape, in Python's form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Final

__all__ = ["few", "visible", "visible_json", "visible_lines"]

# C0 except the tab, DEL, C1; line and paragraph separators; characters that reorder text or are invisible; halves of a
# surrogate pair.
_CONTROL: Final = re.compile(
    "[\x00-\x08\x0a-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e007f\ud800-\udfff]"
)
_INDENT: Final = "    "
_NAMED: Final = 5


def visible(text: str) -> str:
    """``text`` on one line, with escapes such as ``\\x1b`` and ``\\n`` for its control characters; tabs stay."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


def visible_lines(text: str) -> str:
    """:func:`visible` for a text of several lines, which stay apart. All lines but the first are indented, so that none
    of them can be taken for a line of the log.
    """
    return f"\n{_INDENT}".join(visible(line.removesuffix("\r")) for line in text.split("\n"))


def visible_json(text: str) -> str:
    """JSON of the same value, with JSON's own escapes for the control characters in its strings."""
    return _CONTROL.sub(lambda found: json.dumps(found[0])[1:-1], text)


def few(names: Sequence[str]) -> str:
    """The first names, and the number of further ones."""
    rest = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + rest
