"""The Lua scripts that change rows in Redis, and the hash with the version of each row.

Each row of a table has an :class:`Entry`, under its key, in a hash for the log and table (:func:`index_of`). The entry
of a deleted row, a tombstone, stays for a while, so that an older value cannot come back. A sorted set has the time at
which each tombstone may be removed. The entry of the empty key is the version of the table's last TRUNCATE. Older
values are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final, NamedTuple, Self

from sinks.redis.flows import CHECK, Script

__all__ = ["BYTES", "ROWS", "Entry", "apply", "index_of", "remove", "truncate"]

ROWS: Final = 1000
"""The most rows of one script, because the server does nothing else during a script."""
BYTES: Final = 1 << 20
"""About the most bytes of one script."""

_TIME: Final = """
local function put(command, key, values) if #values > 0 then redis.call(command, key, unpack(values)) end end
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local forget = string.format('%.0f', now + tonumber(ARGV[4]))
"""
_FORGET: Final = """
local over = redis.call('ZRANGEBYSCORE', KEYS[3], '-inf', string.format('%.0f', now), 'LIMIT', 0, 2000)
put('HDEL', KEYS[2], over)
put('ZREM', KEYS[3], over)
return 1
"""
_APPLY: Final = f"""
{CHECK} redis.call('HSET', KEYS[1], 'version', ARGV[3])
{_TIME}
local floor = redis.call('HGET', KEYS[2], '') or ''
local there, away = ' 1 ' .. ARGV[5], ' 0 ' .. ARGV[5]
local keys, arguments, match = KEYS, ARGV, string.match
local known, values, gone, tombstones, back = {{}}, {{}}, {{}}, {{}}, {{}}
local k, v = 0, 0
for i, before in ipairs(redis.call('HMGET', KEYS[2], unpack(KEYS, 4))) do
  local key, version, value = keys[i + 3], arguments[2 * i + 4], arguments[2 * i + 5]
  local newest = before and match(before, '^%d+') or ''
  -- A repetition repairs a value that was removed by hand, and removes none.
  if version >= floor and (version > newest or (version == newest and value ~= '')) then
    known[k + 1] = key
    if value ~= '' then
      known[k + 2] = version .. there
      values[v + 1], values[v + 2] = key, value
      v = v + 2
      if before and match(before, '^%d+ 0') then back[#back + 1] = key end
    else
      known[k + 2] = version .. away
      gone[#gone + 1] = key
      tombstones[#tombstones + 1] = forget
      tombstones[#tombstones + 1] = key
    end
    k = k + 2
  end
end
put('HSET', KEYS[2], known)
put('ZREM', KEYS[3], back)
put('ZADD', KEYS[3], tombstones)
if #values > 0 then redis.call('MSET', unpack(values)) end
if #gone > 0 then redis.call('UNLINK', unpack(gone)) end
{_FORGET}
"""
_REMOVE: Final = f"""
{CHECK} redis.call('HSET', KEYS[1], 'version', ARGV[3])
{_TIME}
for i = 4, #KEYS do
  local key, before, entry = KEYS[i], ARGV[2 * i - 3], ARGV[2 * i - 2]
  if redis.call('HGET', KEYS[2], key) == before then
    redis.call('UNLINK', key)
    if entry == '' then
      redis.call('HDEL', KEYS[2], key)
      redis.call('ZREM', KEYS[3], key)
    else
      redis.call('HSET', KEYS[2], key, entry)
      redis.call('ZADD', KEYS[3], forget, key)
    end
  end
end
{_FORGET}
"""
_TRUNCATE: Final = f"""
{CHECK} redis.call('HSET', KEYS[1], 'version', ARGV[3])
if ARGV[4] > (redis.call('HGET', KEYS[2], '') or '') then redis.call('HSET', KEYS[2], '', ARGV[4]) end
return 1
"""


class Entry(NamedTuple):
    """The entry of a row. ``version``: the version of its value, or of its removal if ``there`` is false.
    ``generation`` and ``shard``: from the update that wrote the row. ``types``: the types of the key's values.
    """

    version: str
    there: bool
    generation: int
    types: str
    shard: str

    def to_text(self) -> str:
        """The stored form."""
        return f"{self.version} {self.there:d} {self.rest}"

    @property
    def rest(self) -> str:
        """The end of the stored form, which the rows of many updates have in common."""
        return f"{self.generation} {self.types} {self.shard}"

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of :meth:`to_text`. Raises ``ValueError`` for other bytes."""
        version, there, generation, types, shard = data.decode().split(" ", 4)
        return cls(version, there == "1", int(generation), types, shard)


def index_of(log: str, table: str) -> tuple[str, str]:
    """The keys of a table's hash of entries and of its sorted set of tombstones."""
    return f"wormhole:rows:{log}:{table}", f"wormhole:gone:{log}:{table}"


def apply(index: tuple[str, str], keep: int, rest: str, rows: Mapping[bytes, tuple[bytes, bytes]]) -> Script:
    """Store rows, by key a version and a value, unless a newer version is stored. The value ``b""`` deletes the row.
    ``keep``: milliseconds for which tombstones are kept. ``rest``: :attr:`Entry.rest` of all rows.
    """
    return Script(_APPLY, [*index, *rows], [keep, rest, *chain.from_iterable(rows.values())])


def remove(index: tuple[str, str], keep: int, rows: Iterable[tuple[bytes, bytes, Entry | None]]) -> Iterator[Script]:
    """Remove rows. Each has its key, its expected entry, and its tombstone (``None``: the entry is removed too). A row
    whose entry has changed is left.
    """
    rest = iter(rows)
    while portion := list(islice(rest, ROWS)):
        pairs = [part for _, before, entry in portion for part in (before, "" if entry is None else entry.to_text())]
        yield Script(_REMOVE, [*index, *(key for key, _, _ in portion)], [keep, *pairs])


def truncate(index: tuple[str, str], version: str) -> Script:
    """Refuse values of the table that are older than ``version`` from now on."""
    return Script(_TRUNCATE, index, [version])
