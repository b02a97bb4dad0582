"""Splits filter text into tokens, each with its column, and makes errors that point there."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, NoReturn
from typing import Literal as OneOf

from wormhole.filters.tree import Literal
from wormhole.model.errors import FilterError

__all__ = ["MAX_TEXT", "Token", "fail", "tokenize"]

MAX_TEXT: Final = 65_536
"""Limit of a filter, in characters. A list of a few thousand keys fits. It bounds the parsing that a caller can
cause.
"""

_WINDOW: Final = 96

Kind = OneOf["word", "name", "value", "sign", "end"]


@dataclass(frozen=True, slots=True)
class Token:
    """``kind``: a word (keyword or plain field name), a name in backticks, a literal value, a sign, or the end of the
    text.
    """

    kind: Kind
    text: str
    at: int
    value: Literal | None = None


_SPACE: Final = re.compile(r"\s*")
_WORD: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_SIGN: Final = re.compile(r"==|!=|<=|>=|[<>()\[\],%.]")
_NUMBER: Final = re.compile(r"-?[0-9]+(\.[0-9]+)?(?![A-Za-z0-9_.])", re.ASCII)
_HEX: Final = re.compile(r"0[xX]([0-9A-Fa-f]*)(?![A-Za-z0-9_.])", re.ASCII)
_BACKTICKS: Final = re.compile(r"`((?:[^`]|``)+)`")
_PLAIN: Final = re.compile(r"[^\\\"'\n]+")
_CODES: Final = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\", '"': '"', "'": "'"}
_WIDTHS: Final = {"x": 2, "u": 4, "U": 8}


def fail(text: str, at: int, problem: str, allowed: str = "") -> NoReturn:
    """Raise :class:`~wormhole.model.errors.FilterError`, which shows the line and points at the column."""
    at = min(max(at, 0), len(text))
    begin = text.rfind("\n", 0, at) + 1
    end = text.find("\n", at)
    line, column = text[begin : end if end >= 0 else len(text)], at - begin
    cut = max(0, column - _WINDOW // 2)
    shown = line[cut : cut + _WINDOW]
    head, tail = ("..." if cut else ""), ("..." if cut + _WINDOW < len(line) else "")
    # Characters that are not printable (tabs included) would move the arrow.
    shown = "".join(c if c.isprintable() else " " for c in shown)
    pointer = " " * (len(head) + column - cut) + "^"
    where = (
        f"column {column + 1}" if "\n" not in text else f"line {text.count(chr(10), 0, at) + 1}, column {column + 1}"
    )
    lines = [f"filter, {where}: {problem}", f"  {head}{shown}{tail}", f"  {pointer}"]
    if allowed:
        lines.append(f"  allowed here: {allowed}")
    raise FilterError("\n".join(lines))


def tokenize(text: str) -> list[Token]:
    """All tokens, an ``end`` last. Raises :class:`~wormhole.model.errors.FilterError`."""
    if len(text) > MAX_TEXT:
        raise FilterError(
            f"filter: {len(text)} characters are more than {MAX_TEXT}",
            hint="use a prefix, a range or a hash of the key",
        )
    for at, char in enumerate(text):
        if 0xD800 <= ord(char) < 0xE000:
            fail(text, at, "half of a surrogate pair is no character")
    tokens: list[Token] = []
    at = 0
    while True:
        if space := _SPACE.match(text, at):
            at = space.end()
        if at == len(text):
            tokens.append(Token("end", "the end of the filter", at))
            return tokens
        token, at = _next(text, at)
        tokens.append(token)


def _next(text: str, at: int) -> tuple[Token, int]:
    char = text[at]
    if char in "\"'":
        value, end = _string(text, at)
        return Token("value", text[at:end], at, value), end
    if char == "b" and text[at + 1 : at + 2] in ("'", '"'):
        content, end = _string(text, at + 1, as_bytes=True)
        return Token("value", text[at:end], at, content.encode("latin-1")), end
    if found := _WORD.match(text, at):
        return Token("word", found[0], at), found.end()
    if found := _SIGN.match(text, at):
        return Token("sign", found[0], at), found.end()
    if found := _HEX.match(text, at):
        if len(found[1]) % 2:
            fail(text, at, "hexadecimal bytes need two digits each", '0x00ff, b".." for readable bytes')
        return Token("value", found[0], at, bytes.fromhex(found[1])), found.end()
    if found := _NUMBER.match(text, at):
        return Token("value", found[0], at, _number(text, at, found)), found.end()
    if found := _BACKTICKS.match(text, at):
        return Token("name", found[0], at, found[1].replace("``", "`")), found.end()
    if char == "=":
        fail(text, at, "a single = compares nothing", "==")
    if char == "`":
        fail(text, at, "a field name in backticks is not closed", "`field name`")
    return fail(text, at, f"{char!r} begins nothing that a filter knows", _BEGINNINGS)


_BEGINNINGS: Final = 'words, "text", b"bytes", 0xff00, numbers, `field name`, == != < <= > >= ( ) [ ] , % .'


def _number(text: str, at: int, found: re.Match[str]) -> int | Decimal:
    if len(found[0]) > 80:
        fail(text, at, "a number has at most 80 digits")
    return Decimal(found[0]) if found[1] else int(found[0])


def _string(text: str, begin: int, as_bytes: bool = False) -> tuple[str, int]:
    """The content of the quoted string at ``begin``, and where the string ends. Bytes are returned as Latin-1."""
    quote = text[begin]
    parts: list[str] = []
    at = begin + 1
    while at < len(text) and text[at] != "\n":
        char = text[at]
        if char == quote:
            return "".join(parts), at + 1
        if char == "\\":
            decoded, end = _escape(text, at, as_bytes)
            parts.append(decoded)
            at = end
            continue
        found = _PLAIN.match(text, at)
        run = found[0] if found else char
        if as_bytes and not run.isascii():
            wrong = next(i for i, c in enumerate(run) if not c.isascii())
            fail(text, at + wrong, "bytes are written in ASCII", 'escapes like \\xff, or "text", which means its UTF-8')
        parts.append(run)
        at += len(run)
    return fail(text, begin, f"the string that begins here is not closed by {quote} on its line")


def _escape(text: str, at: int, as_bytes: bool) -> tuple[str, int]:
    code = text[at + 1 : at + 2]
    if code in _CODES:
        return _CODES[code], at + 2
    width = _WIDTHS.get(code, 0)
    if not width or (code == "x") != as_bytes:
        fail(
            text,
            at,
            "no such escape",
            '\\xff \\n \\r \\t \\0 \\\\ \\"' if as_bytes else '\\u00e9 \\U0001f600 \\n \\r \\t \\0 \\\\ \\"',
        )
    digits = text[at + 2 : at + 2 + width]
    if len(digits) < width or not re.fullmatch(r"[0-9A-Fa-f]+", digits):
        fail(text, at, f"\\{code} needs {width} hexadecimal digits")
    number = int(digits, 16)
    if number > 0x10FFFF or 0xD800 <= number < 0xE000:
        fail(text, at, f"\\{code}{digits} is no character")
    return chr(number), at + 2 + width
