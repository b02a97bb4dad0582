"""Builds the key of a row in Redis from a template. Pure.

Parts of a key are joined with ``:``. In each part ``%`` and ``:`` are escaped as ``%25`` and ``%3A``, so that two rows
of one table never share a key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from string import Formatter
from typing import Final

from subscriber_sdk import Key, Value
from wormhole.model.errors import Fatal

__all__ = ["OWNERS", "Keys", "NoKey", "check_template", "pattern_of", "types_of", "values_of"]

_OWN: Final = b"wormhole:"
OWNERS: Final = "wormhole:owners"
"""The Redis hash from the prefixes of the keys under which sinks keep rows to the tables of these rows."""
_FIELDS: Final = {"log", "table"}
_LETTERS: Final = {bool: "o", int: "i", str: "t", bytes: "b", Decimal: "d", float: "f"}
_FROM_PART: Final[Mapping[str, Callable[[bytes], Value]]] = {
    "o": lambda part: part == b"true",
    "i": int,
    "t": bytes.decode,
    "b": bytes,
    "d": lambda part: Decimal(part.decode()),
    "f": float,
}
_GLOB: Final = re.compile(rb"([*?\[\]\\])")


class NoKey(Fatal):
    """No key can be made for the row of an update. The update is parked, or its flow halts."""

    code: str = "record-refused"


def check_template(template: str) -> str:
    """Check a template, and return it. Raises ``ValueError``."""
    try:
        fields = [(name, spec, conversion) for _, name, spec, conversion in Formatter().parse(template)]
    except ValueError:
        fields = [("", "", "")]
    names = [name for name, _, _ in fields if name is not None]
    if (
        not template.endswith("{key}")
        or names.count("key") != 1
        or not _FIELDS.issuperset({*names} - {"key"})
        or any(spec or conversion for _, spec, conversion in fields)
        or "\0" in template
    ):
        raise ValueError('must end with "{key}", and may hold {table} and {log} before it')
    if template.startswith(_OWN.decode()) or template == "{key}":
        raise ValueError('must begin with other text than "wormhole:", and have text or {table} before {key}')
    return template


class Keys:
    """Builds keys. ``tables``: the templates of single tables; ``template``: the template of all others."""

    def __init__(self, template: str, tables: Mapping[str, str]) -> None:
        self._template = template
        self._tables = tables
        self._prefixes: dict[tuple[str, str], bytes] = {}

    def prefix(self, shard: str, table: str) -> bytes:
        """The prefix of every key of a table. Raises :class:`NoKey` if the sink's own keys could begin with it."""
        found = self._prefixes.get((shard, table))
        if found is None:
            template = self._tables.get(table, self._template)
            log = shard.partition(".")[0]
            found = template.format(table=_escaped_text(table), log=log, key="").encode()
            if found.startswith(_OWN) or _OWN.startswith(found):
                raise NoKey(
                    f"keys of {table} could be those of the sink itself, which begin with {_OWN.decode()}",
                    hint=f'give the table another template: keys = {{ {json.dumps(table)} = "rows:{{key}}" }}',
                )
            self._prefixes[shard, table] = found
        return found

    def key(self, shard: str, table: str, values: Key) -> bytes:
        """The key of the row with these values of its key columns. Raises :class:`NoKey`."""
        if not values:
            raise NoKey(
                f"{table} has no key, so that its rows have none in the store",
                hint="leave the table out of the application, or give it a primary key",
            )
        return self.prefix(shard, table) + b":".join([_part(table, value) for value in values])

    def keys(self, shard: str, table: str, rows: Sequence[Key]) -> list[bytes]:
        """The keys of several rows of one table, as :meth:`key` makes them."""
        if not rows:
            return []
        prefix = self.prefix(shard, table)
        if {int}.issuperset([type(value) for values in rows for value in values]) and {1}.issuperset(map(len, rows)):
            return [prefix + b"%d" % values for values in rows]  # type: ignore[str-format]
        return [self.key(shard, table, values) for values in rows]


def types_of(values: Key) -> str:
    """One letter for the type of each value of a key, from which :func:`values_of` restores the values."""
    return "".join([_LETTERS[type(value)] for value in values])


def values_of(parts: bytes, types: str) -> Key:
    """The values of a key. ``parts``: the text after the prefix; ``types``: see :func:`types_of`."""
    return tuple(
        _FROM_PART[letter](part.replace(b"%3A", b":").replace(b"%25", b"%"))
        for letter, part in zip(types, parts.split(b":"), strict=True)
    )


def pattern_of(prefix: bytes) -> bytes:
    """The pattern, in the syntax of Redis, of every key that begins with ``prefix``."""
    return _GLOB.sub(rb"\\\1", prefix) + b"*"


def _part(table: str, value: Value) -> bytes:
    match value:
        case bool():
            return b"true" if value else b"false"
        case int():
            return b"%d" % value
        case str():
            return _escaped(value.encode())
        case bytes():
            return _escaped(value)
        case Decimal():
            # Equal numbers may have different numbers of zeros after the decimal point.
            return _escaped_text(f"{value.normalize() + 0:f}" if value.is_finite() else str(value)).encode()
        case float():
            return repr(value + 0.0).encode()
    raise NoKey(
        f"{table} has a row whose key is a {type(value).__name__}, which no key can be made of",
        hint="leave the table out of the application",
    )


def _escaped(part: bytes) -> bytes:
    return part.replace(b"%", b"%25").replace(b":", b"%3A") if b"%" in part or b":" in part else part


def _escaped_text(part: str) -> str:
    return part.replace("%", "%25").replace(":", "%3A")
