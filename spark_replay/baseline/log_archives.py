"""The archive of a dataset for a baseline: by log, its updates since the plan, and its ends."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from spark_replay.archive.manifest import Manifest
from spark_replay.archive.ranges import files_between, held
from spark_replay.archive.store import ArchiveStore
from spark_replay.baseline.scan import Portion, Scan, ScanOutcome, not_before_of
from spark_replay.baseline.source_tables import SourceTables
from spark_replay.baseline.work import archive_end, of_log
from spark_replay.frames import ShardFiles
from spark_replay.tables.rolling import lost_after
from wormhole.model.errors import ReplayError, UsageError
from wormhole.model.position import Datamarker

__all__ = ["ANOTHER", "PATIENCE_S", "LogArchives", "ScanPace"]

PATIENCE_S: Final = 120.0
ANOTHER: Final = "begin the baseline in another folder"
_PAUSE_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class ScanPace:
    """The settings of a baseline. ``range_rows``: rows of a range; 0: by the tables' sizes and Spark's slots.
    ``patience_s``: seconds for which the datastore may not answer, or the archive may not grow. ``pause``: sleeps for
    some seconds. ``say``: reports the present activity. ``run``: runs the portions; ``None``: as Spark tasks.
    """

    range_rows: int = 0
    patience_s: float = PATIENCE_S
    pause: Callable[[float], object] = time.sleep
    say: Callable[[str], object] = lambda text: None
    run: Callable[[Scan, Sequence[Portion]], list[ScanOutcome]] | None = None


class LogArchives:
    """The archives of some logs. Methods block, and raise the store's errors. ``logs``: names of the logs."""

    def __init__(self, store: ArchiveStore, source: SourceTables, logs: Sequence[str], pace: ScanPace) -> None:
        self._store = store
        self._source = source
        self._logs = logs
        self._pace = pace

    def end(self, log: str) -> Datamarker:
        """The end of the log's archive. Raises :class:`~wormhole.model.errors.UsageError` if nothing is archived."""
        end = archive_end(self._manifests(log).values())
        if end is None:
            raise UsageError(
                f"nothing of the log {log} is archived yet: rows that are read now could not be completed",
                hint="run `wormholectl archive run`, and begin when `wormholectl archive show` lists its shards",
                code="archive-missing",
            )
        return end

    def log_of(self, shard: str) -> str:
        """The log of a shard. Raises :class:`~wormhole.model.errors.UsageError` for a shard of no configured log."""
        for log in self._logs:
            if of_log(log, shard):
                return log
        raise UsageError(
            f"the archive has the shard {shard}, which is of no log that is configured",
            hint="configure its log, or archive into a folder of its own",
        )

    def since(self, begins: Mapping[str, Datamarker], manifests: Mapping[str, Manifest]) -> list[ShardFiles]:
        """The ranges that were archived since ``begins``. ``begins``: by log.

        Raises :class:`~wormhole.model.errors.ReplayError` if a part of them is lost.
        """
        found = []
        for shard, manifest in manifests.items():
            begin = max(begins[self.log_of(shard)], manifest.begin, key=lambda one: one.order)
            if manifest.end.order < begin.order:
                raise ReplayError(
                    f"{held(manifest)}, and the baseline began at {begin.order}",
                    hint=f"put the newer manifests back, or {ANOTHER}",
                )
            # The progress of the archiver's own backfill has no meaning for another flow.
            begin, end = (replace(marker, backfill=b"") for marker in (begin, manifest.end))
            range_ = ShardFiles(shard, files_between(manifest, begin, end), begin, end)
            if lost := lost_after(manifest, range_):
                raise ReplayError(f"{lost}, and rows were read before that", shard=shard, hint=ANOTHER)
            found.append(range_)
        return found

    def await_reached(self, highs: Mapping[str, Collection[str]], begins: Mapping[str, Datamarker]) -> None:
        """Wait until every shard is archived up to each of these places. ``highs``: by log.

        Raises :class:`~wormhole.model.errors.ReplayError` if the archive does not grow, or continues in another history
        of the log.
        """
        for log, wanted in highs.items():
            self._await_log(log, wanted, begins[log])

    def _await_log(self, log: str, highs: Collection[str], begin: Datamarker) -> None:
        last: dict[str, Datamarker] = {}
        deadline = time.monotonic() + self._pace.patience_s
        while True:
            ends = {shard: one.end for shard, one in self._manifests(log).items()}
            behind = [
                shard for shard, end in ends.items() if not all(self._source.reached(log, high, end) for high in highs)
            ]
            if not behind:
                return
            not_before_of(self._store, log, begin)
            if not last:
                self._pace.say(f"waiting until the archive has {log} up to {max(highs)}")
            if ends != last:
                last, deadline = ends, time.monotonic() + self._pace.patience_s
            elif time.monotonic() >= deadline:
                raise ReplayError(
                    f"the archive of {behind[0]} does not move: it ends at {ends[behind[0]].order}, and rows were read "
                    f"up to {max(highs)}",
                    shard=behind[0],
                    hint="see that `wormholectl archive run` runs, and with `wormholectl why-lag` why it is behind; "
                    "then the same command goes on where it was",
                )
            self._pace.pause(_PAUSE_S)

    def _manifests(self, log: str) -> dict[str, Manifest]:
        return {shard: one for shard, one in self._store.heads().items() if of_log(log, shard)}
