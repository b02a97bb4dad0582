"""Faults of the protocol that the simulation finds: one at a time is put into the text of a module as it is imported.

They have the form of :mod:`tests.mutants`, so `make check` finds one that no longer fits the code.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Final

from scripts.prepare import ROOT
from tests.mutants.runner import Fault, applied

__all__ = ["ALL_FAULTS", "ATTACH_FAULTS", "MOVE_FAULTS", "put_in"]

_TESTS: Final = ("tests/simulation/test_ownership.py::test_schedules",)


def _fault(name: str, file: str, old: str, new: str, promise: str) -> Fault:
    return Fault(name, file, old, new, _TESTS, promise)


_GUARD: Final = "publisher/stores/guarded_client.py"
_STORE: Final = "publisher/stores/markers/zookeeper.py"
_OWNERSHIP: Final = "publisher/flows/ownership.py"
_ASSIGNER: Final = "publisher/flows/assigner.py"
_CLAIM: Final = "wormhole/coordination/log_claim.py"
_SESSION: Final = "wormhole/coordination/kazoo_session.py"
_ZOOKEEPER: Final = "wormhole/coordination/zookeeper.py"
_RULES: Final = "publisher/stores/markers/rules.py"
_ATTACHED: Final = "publisher/push/attached.py"
_ROW: Final = "subscriber_sdk/transactional/marker_row.py"

SIMULATED_FAULTS: Final[list[Fault]] = [
    _fault(
        "datamarkers-without-the-claim",
        _GUARD,
        "        transaction.check(fence, -1)\n",
        '        transaction.check(fence.rpartition("/")[0], -1)\n',
        "a former owner of a log stores no datamarker",
    ),
    _fault(
        "flow-records-without-the-claim",
        _ZOOKEEPER,
        '        return max(claims, key=lambda claim: claim.held).fence() if claims else ""\n',
        '        return ""\n',
        "a former owner of a log writes no flow record",
    ),
    _fault(
        "lease-longer-than-the-session",
        _ZOOKEEPER,
        "        return self._session.timeout_s() * 2 / 3\n",
        "        return self._session.timeout_s() * 3\n",
        "an owner sends nothing once another may own the log",
    ),
    _fault(
        "sent-beyond-the-lease",
        _OWNERSHIP,
        "        return self.ours() and (not self._fenced or self._leased())\n",
        "        return self.ours()\n",
        "an owner sends nothing once another may own the log",
    ),
    _fault(
        "sent-without-the-claim",
        _OWNERSHIP,
        "        return self.ours() and (not self._fenced or self._leased())\n",
        "        return not self._fenced or self._leased()\n",
        "a process whose session was lost sends nothing before it owns the log again",
    ),
    _fault(
        "contact-dated-by-its-answer",
        _SESSION,
        "earlier + self.timeout_s() * _CREDITED",
        "self._clock()",
        "the lease begins when a question was sent, not when its answer came",
    ),
    _fault(
        "lease-renewed-by-reads",
        _SESSION,
        "        return await answered\n",
        "        sent = self._clock()\n"
        "        answers = await answered\n"
        "        self._last_contact = max(self._last_contact, sent)\n"
        "        return answers\n",
        "only what ZooKeeper's leader answers renews the lease",
    ),
    _fault(
        "epoch-not-raised-in-the-store",
        _ASSIGNER,
        "        epochs = await asyncio.to_thread(self._store.raise_epochs, above) if free else {}\n",
        "        epochs = {flow.key: max(flow.epoch, above[flow.key]) + 1 for _, flow in free}\n",
        "an epoch of a flow has one owner and one subscriber",
    ),
    _fault(
        "older-record-written-over",
        _STORE,
        "        if known[0] == made and version < known[1]:\n",
        "        if known[0] != made and version < known[1]:\n",
        "an owner that has seen a later record than ZooKeeper holds reads everything anew",
    ),
    _fault(
        "own-writes-not-remembered",
        _STORE,
        "        self._versions[flow] = self._versions[flow][0], version + 1\n",
        "        self._versions[flow] = self._versions[flow][0], version\n",
        "an owner that has seen a later record than ZooKeeper holds reads everything anew",
    ),
    _fault(
        "owner-not-told-of-an-older-record",
        _GUARD,
        "            self._report(reason)\n",
        "",
        "an owner that has seen a later record than ZooKeeper holds reads everything anew",
    ),
    _fault(
        "former-holder-ignored",
        "publisher/flows/applications.py",
        '        if settings.markers == "zookeeper" and lease_s != math.inf:\n',
        '        if settings.markers == "local":\n',
        "a new owner of a log assigns a flow first to the subscriber that has it",
    ),
    _fault(
        "intended-subscriber-not-recorded",
        _ASSIGNER,
        "                for stream, flow in raised:\n"
        "                    flow.holding.intend(stream.info.id, stream.info.process)\n",
        "",
        "the subscriber is recorded before it gets the flow",
    ),
    _fault(
        "former-holder-waited-for-without-its-handler",
        "publisher/flows/applications.py",
        "holder.seen_at + lease_s + settings.handler_timeout",
        "holder.seen_at + lease_s",
        "a new owner of a log waits for the handlers that the last one called",
    ),
    _fault(
        "silent-subscriber-not-waited-for",
        _ASSIGNER,
        "now - stream.since <= self._timeouts.grace + self._timeouts.handler\n",
        "now - stream.since <= self._timeouts.grace\n",
        "a handler of a subscriber that does not answer is waited for",
    ),
    _fault(
        "asked-to-release-taken-for-released",
        _ASSIGNER,
        "            idle = flow.releasing and now - flow.holding.asked_at > self._timeouts.handler\n",
        "            idle = flow.releasing\n",
        "a shard moves once it was released, or its handler has timed out",
    ),
    _fault(
        "broken-connection-taken-for-a-release",
        _ASSIGNER,
        "        if holder is not None and holder is not member and holding.lost_from is holder.stream:\n",
        "        if holder is not None and holding.lost_from is None and member is None:\n",
        "a shard has one handler at a time",
    ),
    _fault(
        "log-taken-from-its-owner",
        _CLAIM,
        "                    raise log_taken(self._info, self._shown(found.holder))\n",
        "                    pass\n",
        "a log has one owner, until its session ends",
    ),
    _fault(
        "taken-again-although-another-had-it",
        _CLAIM,
        "            if found.record is None or found.record.claim not in self._made:\n",
        "            if found.record is None:\n",
        "an owner takes the log again only if no other process owned it since",
    ),
    _fault(
        "claim-of-a-lost-session-held",
        _CLAIM,
        "        return there and self._held_in != 0 and self._held_in == self._session.session_id\n",
        "        return self._held_in != 0\n",
        "a process whose session was lost sends nothing before it owns the log again",
    ),
    _fault(
        "given-up-without-the-owners-entry",
        _CLAIM,
        "            transaction.delete(paths.claim(group, claim))\n"
        "            transaction.delete(paths.owner(group))\n",
        "            transaction.delete(paths.claim(group, claim))\n",
        "claim and owner's entry are made and deleted together",
    ),
    _fault(
        "serves-on-when-the-log-is-anothers",
        "publisher/publisher.py",
        '                group.create_task(self.ownership.until_another(self.log.cannot_be_read), name="ownership")\n',
        "",
        "a former owner becomes a candidate again",
    ),
    _fault(
        "unguarded-after-giving-up",
        _OWNERSHIP,
        "        claim = self._claim or self._former\n",
        "        claim = self._claim\n",
        "after a claim was given up nothing is written any more",
    ),
    _fault(
        "lost-log-not-noticed-before-the-registration",
        _OWNERSHIP,
        "        if self._claim is None:\n            return await registering\n",
        "        if self._claim is not None:\n            return await registering\n",
        "a former owner becomes a candidate again",
    ),
    _fault(
        "restarted-subscriber-not-waited-for",
        _ASSIGNER,
        "            if former is None or flow.holding.lost_from is not former:\n",
        "            if former is None or flow.holding.lost_from is former:\n",
        "a shard has one handler at a time",
    ),
]

MOVE_FAULTS: Final[list[Fault]] = [
    _fault(
        "move-without-a-number",
        _RULES,
        "    move, acked = anew.epoch if counts else stored.move, stored.last_ack\n",
        "    move, acked = stored.move, stored.last_ack\n",
        "each move of a datamarker has a number that only rises",
    ),
    _fault(
        "kept-datamarker-of-a-former-move",
        _ROW,
        "    if notice.move > row.move or unnumbered:\n",
        "    if unnumbered:\n",
        "a datamarker that was kept before a move is not delivered from",
    ),
    _fault(
        "move-adopted-again",
        _ROW,
        "        moved = max(notice.move, row.move)\n",
        "        moved = row.move\n",
        "an application adopts a move once, whoever dies before it is acknowledged",
    ),
    _fault(
        "move-forgotten-by-the-next-owner",
        _RULES,
        "    return StoredFlow(marker, epoch, start, filter_hash, asked, rewound, move, last_ack)\n",
        "    return StoredFlow(marker, epoch, start, filter_hash, asked, rewound, 0, last_ack)\n",
        "the number of a move outlives the publisher that made it",
    ),
    _fault(
        "acknowledgement-dropped-by-a-move-that-fails",
        "publisher/flows/records.py",
        "                counts = not by_application and not _is_at(flow, to)\n",
        "                self.markers.drop(flow.key)\n"
        "                counts = not by_application and not _is_at(flow, to)\n",
        "a move that the store refuses leaves what was acknowledged",
    ),
    _fault(
        "set-back-without-a-number",
        "publisher/push/delivery.py",
        "        self.rewound |= to.order < before\n",
        "        self.rewound |= to.order < max(self.marker.order, self.durable.order)\n",
        "what was acknowledged is set back only by a move that has a number",
    ),
]


ATTACH_FAULTS: Final[list[Fault]] = [
    _fault(
        "lost-process-taken-for-gone",
        _ATTACHED,
        "        away = known.line is None and self._clock.monotonic() - known.lost_at > self._gone_after\n",
        "        away = known.line is None\n",
        "another process of an id is refused until no handler of the former one can run",
    ),
    _fault(
        "same-id-admitted-twice",
        _ATTACHED,
        "        if key in self._known:\n",
        "        if key in self._known and self._known[key].line is None:\n",
        "another process of an id is refused while the first one is connected",
    ),
    _fault(
        "another-process-taken-for-the-former-holder",
        _ASSIGNER,
        "            if holder is not None and holder.stream.info.process != holding.process:\n",
        "            if holder is None and holding.process:\n",
        "a new owner of a log waits for the process that had a flow, and not for its id",
    ),
    _fault(
        "former-side-not-waited-for",
        _ASSIGNER,
        "            if bool(former.info.address) == bool(stream.info.address):\n",
        "            if former is not stream:\n",
        "a process that is dialled is waited for where another one of its id dials",
    ),
]

ALL_FAULTS: Final = [*SIMULATED_FAULTS, *MOVE_FAULTS, *ATTACH_FAULTS]


class _Finder(MetaPathFinder, Loader):
    """Gives one module another text."""

    def __init__(self, module: str, path: str, text: str) -> None:
        self._module, self._path, self._text = module, path, text

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return importlib.util.spec_from_loader(name, self, origin=self._path) if name == self._module else None

    def exec_module(self, module: ModuleType) -> None:
        module.__file__ = self._path
        exec(compile(self._text, self._path, "exec"), module.__dict__)


def put_in(name: str) -> None:
    """Put the fault of that name into the product, of which nothing may be imported yet."""
    (fault,) = (fault for fault in ALL_FAULTS if fault.name == name)
    module, path = fault.file.removesuffix(".py").replace("/", "."), ROOT / fault.file
    assert module not in sys.modules, f"{module} is imported already"
    sys.meta_path.insert(0, _Finder(module, str(path), applied(fault, path.read_text())))
