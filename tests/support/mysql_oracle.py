"""What mysql-replication says of a value, in the form that all sides are compared in; nothing it got wrong is put
right here."""

from __future__ import annotations

import datetime
import json
import re
from decimal import Decimal
from typing import Any

from tests.support.mysql_types import NULL, Shown, Type, double


def digits_of(kind: Type) -> int:
    """Digits of a temporal type's fraction."""
    found = re.search(r"\((\d)\)", kind.declared)
    return int(found[1]) if found else 0


def _fraction(microseconds: int, digits: int) -> str:
    return f".{microseconds:06d}"[: digits + 1] if digits else ""


def time_text(microseconds: int, digits: int) -> str:
    """A TIME from its length."""
    sign = "-" if microseconds < 0 else ""
    seconds, rest = divmod(abs(microseconds), 1_000_000)
    return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{_fraction(rest, digits)}"


def translated(kind: Type, truth: Shown, said: Any) -> Shown:
    """``truth``: what ``SELECT`` shows of the same value: where several forms of Python mean one value, it says
    which is compared."""
    expected = truth[0]
    match said:
        case None:
            return NULL
        case float():
            return double(said)
        case Decimal():
            return "decimal", format(said, "f")
        case int() if expected in {"int", "uint"}:
            return ("uint" if said >> 63 > 0 else "int"), said
        case datetime.datetime():
            return "text", f"{said:%H:%M:%S}".join(
                [f"{said.date().isoformat()} ", _fraction(said.microsecond, digits_of(kind))]
            )
        case datetime.date():
            return "text", said.isoformat()
        case datetime.timedelta():
            return "text", time_text(said // datetime.timedelta(microseconds=1), digits_of(kind))
        case str() if kind.name.startswith("bit"):
            return "uint", int(said, 2)
        case "" if expected == "bytes":
            return "bytes", b""
        case set():
            # A Python set has no order; in the server's it is compared.
            shown = str(truth[1]).split(",")
            return "text", ",".join(sorted(said, key=lambda member: shown.index(member) if member in shown else -1))
        case bytes():
            return "bytes", said
        case str():
            return "text", said
        case _:
            return "other", said


def same_document(shown: str, said: Any) -> bool:
    """Whether a JSON document, which the library gives as Python objects with bytes for strings, is the one that
    ``SELECT`` shows."""
    return _same(json.loads(shown), said)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, dict) and isinstance(b, dict):
        b = {_decoded(key): value for key, value in b.items()}
        return a.keys() == b.keys() and all(_same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(_same, a, b))
    b = _decoded(b)
    return type(a) is type(b) and bool(a == b)


def _decoded(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value
