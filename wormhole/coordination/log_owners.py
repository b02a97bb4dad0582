"""Reads who owns the logs, and who could, from ZooKeeper."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from wormhole.coordination.nodes import Nodes, Watcher
from wormhole.coordination.port import CandidateInfo, LogGroup, LogOwners
from wormhole.coordination.records import Paths, candidate_from_json, move_from_json, owner_from_json, term_from_json

__all__ = ["LogOwnersReader"]


class LogOwnersReader:
    """``/logs`` of :mod:`wormhole.coordination.records`."""

    def __init__(self, nodes: Nodes, paths: Paths) -> None:
        self._nodes, self._paths = nodes, paths

    async def read(self, group: LogGroup, changed: Watcher | None = None) -> LogOwners:
        """What is there of one log; a node without a valid record is left out."""
        nodes, paths = self._nodes, self._paths
        path = paths.owner(group)
        owner = nodes.parsed(path, await nodes.get(path, changed), partial(owner_from_json, group, where=path))
        path = paths.term(group)
        record = nodes.parsed(path, await nodes.get(path, changed), partial(term_from_json, where=path))
        path = paths.move(group)
        move = nodes.parsed(path, await nodes.get(path, changed), partial(move_from_json, where=path))
        candidates = await self._candidates(group, changed)
        return LogOwners(owner, candidates, () if record is None else record.terms, move)

    async def read_all(self) -> Mapping[LogGroup, LogOwners]:
        """What is there of every log."""
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
            return self._nodes.parsed(
                path, await self._nodes.get(path, changed), partial(candidate_from_json, name, where=path)
            )

        names = await self._nodes.children(self._paths.candidates(group), changed)
        return tuple(sorted(await self._nodes.each(names, one), key=lambda info: (info.rank, info.name)))
