"""Stores a record of each flow in Redis: its epoch, a version that rises with each write, and its datamarker.

Every write of a flow raises the version of its record, in the same script or after its other commands. The server
accepts the write only if the record has the version that the flow knows. So a process that lost the shard cannot write
any more. A server may lose its last writes, because it was restored, restarted or replaced by a replica. This
is noticed before the next datamarker is acknowledged. The flow is then assigned again, and continues from the
datamarker that the server still has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final, NamedTuple

from sinks.redis.store import Command, Sent, Store, pack
from subscriber_sdk import Datamarker, EpochRefused, KeptMarker, ShardNotice
from subscriber_sdk.transactional.marker_row import MarkerRow, row_key, start_of
from wormhole.model.errors import ProtocolError, TargetRefused, TargetUnavailable
from wormhole.wire.markers import marker_from_bytes, marker_to_bytes

__all__ = ["CHECK", "RAISE", "Evicted", "FlowRecords", "Script"]

CHECK: Final = """
local found = redis.call('HMGET', KEYS[1], 'epoch', 'version')
if (found[1] or '') ~= ARGV[1] or (found[2] or '') ~= ARGV[2] then return 0 end
"""
"""The beginning of every script: it returns 0 if the flow's record has another epoch or version."""
RAISE: Final = f"{CHECK} redis.call('HSET', KEYS[1], 'version', ARGV[3]) return 1"
"""The script that only raises the version."""
_STORE: Final = f"{CHECK} redis.call('HSET', KEYS[1], unpack(ARGV, 3)) return 1"
_FIELDS: Final = ("epoch", "version", "move", "marker", "form", "era", "incarnation", "evicted")


class Evicted(NamedTuple):
    """The number of keys that one run of a server has evicted because its memory was full."""

    server: str
    number: int

    def since(self, before: bytes | None) -> bool:
        """Whether keys were evicted since the earlier number ``before``, in its stored form."""
        server, _, number = (before or self.stored).partition(b" ")
        return self.number > (int(number) if server == self.server.encode() and number.isdigit() else 0)

    @property
    def stored(self) -> bytes:
        """The stored form."""
        return b"%b %d" % (self.server.encode(), self.number)


@dataclass(frozen=True, slots=True)
class Script:
    """A script that begins with :data:`CHECK`, stores ``ARGV[3]`` as the version, and returns 1. ``keys``: the keys
    after the key of the flow's record; ``arguments``: the arguments after the new version.
    """

    text: str
    keys: Sequence[str | bytes] = ()
    arguments: Sequence[str | bytes | int] = ()


@dataclass(frozen=True, slots=True)
class _Flow:
    """The stored record of a flow. ``era``: a number that rises when the datamarker's incarnation falls, because the
    publisher lost its history of the log; ``incarnation``: the incarnation of the last datamarker.
    """

    row: MarkerRow
    era: int
    incarnation: int

    def at(self, row: MarkerRow, marker: Datamarker) -> _Flow:
        """The flow after ``marker``, which is in ``row`` or is about to be."""
        now = marker.order.incarnation
        return _Flow(row, self.era + (now < self.incarnation), now)


class FlowRecords:
    """The records of the flows of one process. ``form``: identifies the form of the stored keys and values. ``whole``:
    whether the store holds every row, so that a flow that has advanced must not begin with an empty store.
    """

    def __init__(self, store: Store, form: str, *, whole: bool) -> None:
        self._store = store
        self._form = form
        self._whole = whole
        self._flows: dict[str, tuple[str, _Flow]] = {}  # by shard the key of its record, and the record stored last
        self._confirmed: dict[str, tuple[int, int]] = {}  # by shard the last epoch and version that the server had
        self._evicted: dict[str, bytes] = {}  # by shard the evicted keys when its epoch began
        self._sent: dict[str, Sent] = {}  # by shard the commands that are not confirmed yet

    async def assigned(self, notice: ShardNotice, evicted: Evicted | None = None) -> KeptMarker | None:
        """Begin an epoch. Returns the stored datamarker, at which delivery begins; ``None``: delivery begins at the
        publisher's datamarker. ``evicted``: the number of keys that the server has evicted so far.

        Raises :class:`~wormhole.model.errors.EpochRefused` if the shard has been in a later epoch.
        """
        assert notice.marker is not None
        await self._drop(notice.shard)
        key = f"wormhole:flow:{row_key(notice).hex()}"
        (fields,) = await self._store.run(("HMGET", key, *_FIELDS))
        found = self._read(key, fields)
        if found is not None and found.row.epoch > notice.epoch:
            epoch = found.row.epoch
            raise EpochRefused(
                f"{self._store.where} holds shard {notice.shard} in epoch {epoch}", held_epoch=epoch, shard=notice.shard
            )
        removed = evicted is not None and evicted.since(fields[7])
        same = found is not None and fields[4] == self._form.encode() and not removed
        start = start_of(
            found.row if found is not None and same else None,
            notice if self._whole else replace(notice, acknowledged=False),
            confirmed=self._confirmed.get(notice.shard, (0, 0)),
        )
        flow = _Flow(start.row, 0, 0) if found is None else found
        after = flow.at(start.row, notice.marker) if start.have is None else replace(flow, row=start.row)
        if evicted is not None:
            self._evicted[notice.shard] = evicted.stored
        await self._replace(notice.shard, key, found, after)
        if start.halt is not None:
            what = "keys of other templates" if found is not None and not same else "no datamarker"
            what = "removed keys, because its memory was full, and has not everything" if removed else f"has {what}"
            raise TargetRefused(
                f"{self._store.where} {what} of shard {notice.shard}, and the flow is at {notice.marker}: what "
                "came before is not there",
                code=start.halt.code,
                hint=start.halt.hint,
            )
        return start.have

    def check(self, shard: str, evicted: Evicted) -> None:
        """Raise :class:`~wormhole.model.errors.TargetRefused` if keys were removed since the epoch began."""
        if evicted.since(self._evicted[shard]):
            raise TargetRefused(
                f"{self._store.where} has removed keys, because its memory was full",
                hint="give it more memory and maxmemory-policy noeviction, resume the flow, and start a backfill",
                code="target-empty",
            )

    def era(self, shard: str) -> int:
        """The era of values that are written now."""
        return self._flows[shard][1].era

    def marker(self, shard: str) -> Datamarker:
        """The datamarker that was stored last."""
        return self._flows[shard][1].row.datamarker

    async def run(self, shard: str, scripts: Sequence[Script], *commands: Command) -> None:
        """Wait until the commands that were sent before are confirmed. Then send the commands and the scripts, each of
        which raises the version. So the server works while the sink prepares the next portion.
        """
        key, flow = self._flows[shard]
        epoch, version = flow.row.epoch, flow.row.version
        packed = [pack(command) for command in commands]
        for number, script in enumerate(scripts, version):
            keys = (key, *script.keys)
            packed.append(pack(("EVAL", script.text, len(keys), *keys, epoch, number, number + 1, *script.arguments)))
        await self.confirmed(shard)
        self._flows[shard] = key, replace(flow, row=replace(flow.row, version=version + len(scripts)))
        names = [*(str(command[0]) for command in commands), *repeat("EVAL", len(scripts))]
        self._sent[shard] = await self._store.send(packed, names)

    async def confirmed(self, shard: str) -> None:
        """Wait until the server has everything that was sent."""
        sent = self._sent.pop(shard, None)
        if sent is None:
            return
        answers = await self._store.receive(sent)
        if not all(answer for name, answer in zip(sent.names, answers, strict=True) if name == "EVAL"):
            raise self._lost(*self._flows[shard])
        row = self._flows[shard][1].row
        self._confirmed[shard] = row.epoch, row.version

    async def marked(self, marker: Datamarker) -> None:
        """Store the datamarker."""
        await self.confirmed(marker.shard)
        key, flow = self._flows[marker.shard]
        if flow.row.marker == marker_to_bytes(marker):
            # An idle flow offers the same datamarker again. The server may have been set back meanwhile.
            (found,) = await self._store.run(("HMGET", key, "epoch", "version"))
            if found != [b"%d" % flow.row.epoch, b"%d" % flow.row.version]:
                raise self._lost(key, flow)
            return
        row = flow.row.advanced(marker, ())
        after = flow.at(row, marker)
        if after.era == flow.era:
            await self._replace(marker.shard, key, flow, after)
            return
        await self._replace(marker.shard, key, flow, replace(after, row=replace(row, marker=flow.row.marker)))
        raise TargetUnavailable(
            f"the log of shard {marker.shard} is in incarnation {after.incarnation}, and was in {flow.incarnation}: "
            "what was written since the last datamarker is written again"
        )

    async def revoked(self, shard: str) -> None:
        """The epoch is over."""
        self._flows.pop(shard, None)
        await self._drop(shard)

    async def _drop(self, shard: str) -> None:
        """Forget the sent commands. The server may still execute them, unless the record changes first."""
        if (sent := self._sent.pop(shard, None)) is not None:
            await self._store.drop(sent)

    async def _replace(self, shard: str, key: str, before: _Flow | None, after: _Flow) -> None:
        """Store ``after`` if the record is still ``before``. After a cancellation the record may be either, and the
        server refuses a write that expects the wrong one.
        """
        row = after.row
        expected = ("", "") if before is None else (before.row.epoch, before.row.version)
        fields: tuple[str | bytes | int, ...] = ("epoch", row.epoch, "version", row.version, "move", row.move)
        fields += ("marker", row.marker, "form", self._form, "era", after.era, "incarnation", after.incarnation)
        fields += ("evicted", evicted) if (evicted := self._evicted.get(shard)) else ()
        (stored,) = await self._store.run(("EVAL", _STORE, 1, key, *expected, *fields))
        if not stored:
            raise self._lost(key, after)
        self._flows[shard] = key, after
        self._confirmed[shard] = row.epoch, row.version

    def _lost(self, key: str, flow: _Flow) -> TargetUnavailable:
        return TargetUnavailable(
            f"the record {key} in {self._store.where} is not in epoch {flow.row.epoch} with the version that this flow "
            "stored: another process has the shard, or the server lost its last writes"
        )

    def _read(self, key: str, found: list[bytes | None]) -> _Flow | None:
        if found[0] is None and found[1] is None:
            return None
        try:
            epoch, version, move, era, incarnation = (int(found[at] or b"") for at in (0, 1, 2, 5, 6))
            marker = found[3] or b""
            if marker:  # an empty marker: the store was empty, and is not filled yet
                marker_from_bytes(marker)
        except (ValueError, ProtocolError):
            raise TargetRefused(
                f"the record {key} in {self._store.where} was changed by hand: it cannot be read",
                hint=f"remove it (DEL {key}); `wormholectl explain target-empty` shows how the flow goes on",
            ) from None
        return _Flow(MarkerRow(epoch, version, move, marker), era, incarnation)
