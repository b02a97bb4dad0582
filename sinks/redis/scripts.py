"""The scripts that change rows and what is known of them.

The rows of a table of one log have an entry each in a hash (:func:`index_of`), by their keys: :class:`Entry`. The entry
of a row that is gone, a tombstone, stays for a while, so that an older value cannot come back: a sorted set has its key
with the time at which it may be forgotten. The entry of the empty key is the version of the table's last TRUNCATE:
older values are not taken.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Final, NamedTuple, Self

from sinks.redis.flows import CHECK, Script

__all__ = ["BYTES", "ROWS", "Entry", "apply", "index_of", "remove", "truncate"]

ROWS: Final = 1000
"""In one script: the server does nothing else meanwhile."""
BYTES: Final = 1 << 20
"""About this number in one script."""

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
    """What is known of a row. ``version``: the version of its value, or of its removal (``there`` is false).
    ``generation``: the generation of the update that wrote it. ``types``: the types of the values of its key.
    ``shard``: that of the update.
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
        """What the rows of many updates have in common, in the stored form."""
        return f"{self.generation} {self.types} {self.shard}"

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of :meth:`to_text`. Raises ``ValueError`` for other bytes."""
        version, there, generation, types, shard = data.decode().split(" ", 4)
        return cls(version, there == "1", int(generation), types, shard)


def index_of(log: str, table: str) -> tuple[str, str]:
    """The keys of the hash of entries, and of the set of tombstones."""
    return f"wormhole:rows:{log}:{table}", f"wormhole:gone:{log}:{table}"


def apply(index: tuple[str, str], keep: int, rest: str, rows: Mapping[bytes, tuple[bytes, bytes]]) -> Script:
    """Store the values of rows by their versions, each unless a newer one is known; ``b""``: the row is gone. ``keep``:
    milliseconds for which tombstones are kept. ``rest``: the remainder of all rows' entries.
    """
    return Script(_APPLY, [*index, *rows], [keep, rest, *chain.from_iterable(rows.values())])


def remove(index: tuple[str, str], keep: int, rows: Iterable[tuple[bytes, bytes, Entry | None]]) -> Iterator[Script]:
    """Remove rows by their keys, each if its entry is still the second part. The third part: the tombstone; ``None``:
    nothing is known of the row any more.
    """
    rest = iter(rows)
    while portion := list(islice(rest, ROWS)):
        pairs = [part for _, before, entry in portion for part in (before, "" if entry is None else entry.to_text())]
        yield Script(_REMOVE, [*index, *(key for key, _, _ in portion)], [keep, *pairs])


def truncate(index: tuple[str, str], version: str) -> Script:
    """Take no older values of the table from now on."""
    return Script(_TRUNCATE, index, [version])
