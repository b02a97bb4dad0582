"""Filter text: anything a caller can send gives a tree that can be written, read again and hashed, or one
FilterError."""

from __future__ import annotations

import random
from types import ModuleType

from tests.fuzz.target import Target
from wormhole.filters.normal import content_hash, normalise
from wormhole.filters.tree import write
from wormhole.model.errors import FilterError

_TESTS = (
    'table == "shop.users"',
    'table matches ("shop.*", "x")',
    'op in ("upsert", "delete")',
    'op != "merge"',
    'key startswith b"user:"',
    "prefix(key[1], 0x00ff)",
    'b"a" <= key < b"b\\xff"',
    "-12.50 < price",
    "hash(key) % 16 not in (3, 4)",
    '`two words` in ("é", "\\u00e9")',
    "changed(email)",
    "customer.`the name`.key is not absent",
    "paid is null",
    "paid == true",
    "entered",
    "false",
)


def _make(rng: random.Random) -> bytes:
    text = rng.choice(_TESTS)
    for _ in range(rng.randrange(6)):
        other = rng.choice(_TESTS)
        text = rng.choice((f"{text} and {other}", f"{other} or {text}", f"not ({text})", f"({text})", f" not {text}"))
    return text.encode()


def _decode(module: ModuleType, data: bytes) -> str:
    expr = module.parse(data.decode("utf-8", "surrogateescape"))
    text = write(expr)
    if module.parse(text) != expr:
        raise AssertionError(f"{text} reads as another filter")
    return content_hash(normalise(expr))


TARGETS = [
    Target(
        name="filter",
        module="wormhole.filters.parser",
        decode=_decode,
        make=_make,
        allowed=(FilterError,),
        observe=lambda value: value,
    )
]
