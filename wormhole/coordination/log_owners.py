"""Reads the owners and the candidates of the logs from ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from wormhole.coordination.nodes import Nodes, Watcher
from wormhole.coordination.port import CandidateInfo, LogGroup, LogOwners
from wormhole.coordination.records import Paths, candidate_from_json, move_from_json, owner_from_json, term_from_json
from wormhole.coordination.rules import REPLACED_WHEN_TAKEN
from wormhole.model.errors import ConfigError

__all__ = ["MOST_CANDIDATES", "LogOwnersReader"]

MOST_CANDIDATES: Final = 50
"""Limit of the candidates that are read for a log. A larger number is an attack, because candidates wait for others."""
_LONGEST_NAME: Final = 500

_STOP_IT: Final = "stop the process that made it: the log is free when its session ends"
_MOVE_AGAIN: Final = "`wormholectl publishers move` writes it anew, and it goes when the log is taken"
_DELETE_IT: Final = "delete it: a publisher that stands by makes its own again"


class LogOwnersReader:
    """``/logs`` of :mod:`wormhole.coordination.records`.

    ``given_up``: whether this process gave up the owner's entry of that session. ZooKeeper may hold it again
    after its data was restored, while the session lives. No process acts for such an entry, and the next process that
    takes the log replaces it.
    """

    def __init__(self, nodes: Nodes, paths: Paths, given_up: Callable[[LogGroup, int], bool]) -> None:
        self._nodes, self._paths, self._given_up = nodes, paths, given_up

    async def read(self, group: LogGroup, changed: Watcher | None = None) -> LogOwners:
        """The owner, candidates and terms of one log. A node without a valid record, or without a process behind it, is
        left out.
        """
        nodes, paths = self._nodes, self._paths
        # The request is read before the owner, because taking the log clears it. So if the request is missing, the
        # owner that is read afterwards is the one that cleared it, or a later one.
        path = paths.move(group)
        move = nodes.parsed(path, await nodes.get(path, changed), partial(move_from_json, where=path), _MOVE_AGAIN)
        path = paths.owner(group)
        owner = await nodes.live_record(
            path,
            partial(owner_from_json, group, where=path),
            changed,
            _STOP_IT,
            REPLACED_WHEN_TAKEN,
            partial(self._given_up, group),
        )
        path = paths.term(group)
        record = nodes.parsed(
            path, await nodes.get(path, changed), partial(term_from_json, where=path), REPLACED_WHEN_TAKEN
        )
        candidates = await self._candidates(group, changed)
        return LogOwners(owner, candidates, () if record is None else record.terms, move)

    async def read_all(self) -> Mapping[LogGroup, LogOwners]:
        """The owners and candidates of every log."""
        top = self._paths.logs
        groups = [
            LogGroup(dataset, group, log)
            for dataset in await self._nodes.children(top)
            for group in await self._nodes.children(f"{top}/{dataset}")
            for log in await self._nodes.children(f"{top}/{dataset}/{group}")
        ]
        return dict(zip(groups, await self._nodes.each(groups, self.read), strict=True))

    async def _candidates(self, group: LogGroup, changed: Watcher | None) -> tuple[CandidateInfo, ...]:
        async def one(name: str) -> CandidateInfo | None:
            path = self._paths.candidate(group, name)
            parse = partial(candidate_from_json, name, where=path)
            return await self._nodes.live_record(path, parse, changed, _DELETE_IT, _DELETE_IT)

        folder = self._paths.candidates(group)
        listed = await self._nodes.children(folder, changed)
        names = [name for name in listed if len(name) <= _LONGEST_NAME][:MOST_CANDIDATES]
        if len(names) < len(listed):
            # The text does not contain their number, which may change all the time: each new text is logged.
            text = f"{folder}: has more than {MOST_CANDIDATES} nodes below it, or some with names of more than "
            text += f"{_LONGEST_NAME} characters; the first {MOST_CANDIDATES} others by name are read"
            self._nodes.report(
                f"{folder}/",
                ConfigError(
                    text, hint="find out who makes them, and remove what is not needed", code="record-too-large"
                ),
            )
        self._nodes.forget_below(folder, names if len(names) == len(listed) else (*names, ""))
        return tuple(sorted(await self._nodes.each(names, one), key=lambda info: (info.rank, info.name)))
