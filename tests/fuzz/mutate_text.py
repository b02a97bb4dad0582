"""Break JSON and TOML where their parsers accept it, so that what reads the values is reached: bytes alone seldom
stay valid."""

from __future__ import annotations

import json
import random
import re
from typing import Any

from tests.fuzz.mutate import mutate

_HOSTILE_TEXTS = (
    "",
    "\x1b[2J",
    "\n2026-01-01 forged",
    "\u202e",
    "\ud800",
    "\0",
    "../../etc/passwd",
    "/",
    ".",
    "x" * 300,
    "é" * 70,
    "AAAA",
    "=",
)
_ODD: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    -0.0,
    1 << 31,
    1 << 63,
    1 << 64,
    -(1 << 63),
    10**30,
    1e308,
    float("inf"),
    float("nan"),
    [],
    {},
    [[]],
    [None],
    {"": None},
)
_TOML_ODD = (
    '""',
    '"\\u001b[2J"',
    '"../x"',
    "-1",
    "0",
    "1.5",
    "inf",
    "nan",
    "true",
    "[]",
    "{}",
    "[[]]",
    "{ hash = 0 }",
    "{ a.b = 1 }",
    "9" * 30,
    "9" * 5000,
    "0x" + "f" * 5000,
    "1979-05-27T07:32:00Z",
    "07:32:00",
    "'x'",
    '"""\nx"""',
    "[" * 2000,
    "{a=" * 2000,
    '"1 GB"',
    '"1e999 s"',
    '"9999999999999 days"',
    '"h:99999"',
)
_TOML_VALUE = re.compile(rb"(?<== )[^\n]+")
_LITERALS = re.compile(rb"-?\d+")


def mutate_json(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """JSON with one to three values, names or branches replaced, moved or left out; sometimes bytes of it."""
    if rng.random() < 0.25:
        return mutate(rng, data, other)
    if rng.random() < 0.03:
        return _literal(rng, data)
    tree, donor = json.loads(data), json.loads(other)
    for _ in range(rng.choice((1, 1, 2, 3))):
        tree = _twisted(rng, tree, donor)
    return json.dumps(tree, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")


def _literal(rng: random.Random, data: bytes) -> bytes:
    """What JSON can say and a dump of Python's cannot: a number of thousands of digits, brackets as deep."""
    found = list(_LITERALS.finditer(data))
    at = rng.choice(found).span() if found else (0, 0)
    text = rng.choice((b"9" * 5000, b"1e999", b"-1E-999", b"[" * 5000, b'{"a":' * 5000, b"[" * 900 + b"]" * 900))
    return data[: at[0]] + text + data[at[1] :]


def _nodes(tree: Any) -> list[tuple[Any, Any]]:
    """Every place of the tree, as its container and key."""
    found: list[tuple[Any, Any]] = []
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        keys = one if isinstance(one, dict) else range(len(one)) if isinstance(one, list) else ()
        for key in keys:
            found.append((one, key))
            waiting.append(one[key])
    return found


def _twisted(rng: random.Random, tree: Any, donor: Any) -> Any:
    places = _nodes(tree)
    if not places or rng.random() < 0.02:
        return _odd(rng)
    holder, key = rng.choice(places)
    match rng.randrange(6):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, dict):
            holder[rng.choice(_HOSTILE_TEXTS)] = holder.pop(key)
        case 1 | 2:
            given = _nodes(donor)
            if given:
                there, name = rng.choice(given)
                holder[key] = json.loads(json.dumps(there[name]))
        case 3 if isinstance(holder, list):
            holder.insert(key, holder[key])
        case 4 if isinstance(holder[key], str):
            holder[key] = _text(rng, holder[key])
        case _:
            holder[key] = _odd(rng)
    return tree


def _odd(rng: random.Random) -> Any:
    if rng.random() < 0.3:
        return rng.choice(_HOSTILE_TEXTS)
    given = rng.choice(_ODD)
    return json.loads(json.dumps(given))  # one of its own, as trees are changed in place


def _text(rng: random.Random, text: str) -> str:
    broken = mutate(rng, text.encode("utf-8", "surrogatepass"), b"0:A+/=") if text else b"\0"
    return broken.decode("utf-8", rng.choice(("replace", "ignore")))


def mutate_toml(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """TOML with values replaced, lines moved, repeated or left out, or lines of another file; sometimes bytes of it."""
    if rng.random() < 0.25:
        return mutate(rng, data, other)
    for _ in range(rng.choice((1, 1, 2, 3))):
        if rng.random() < 0.6 and (found := list(_TOML_VALUE.finditer(data))):
            start, end = rng.choice(found).span()
            data = data[:start] + rng.choice(_TOML_ODD).encode() + data[end:]
            continue
        lines = data.split(b"\n")
        at = rng.randrange(len(lines))
        match rng.randrange(5):
            case 0:
                del lines[at]
            case 1:
                lines.insert(rng.randrange(len(lines) + 1), lines[at])
            case 2:
                lines.insert(at, rng.choice(other.split(b"\n")))
            case 3:
                lines[at] = mutate(rng, lines[at] or b"x", b"[[a.b]]")
            case _:
                lines.insert(
                    at, rng.choice((b"[" + b"a." * 1500 + b"a]", b"[[datasets]]", b"\xff", b"a" * 70 + b" = 1"))
                )
        data = b"\n".join(lines)
    return data
