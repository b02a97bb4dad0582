"""The replay job: it holds the flows, has Spark push them, and hands them over to the live log.

The driver has one thread per flow that Spark works on, and one per log that keeps the leases. Spark gets as many flows
at a time as the request permits, however many slots there are, because it requests executors from the cluster by the
number of waiting tasks. If this process dies at any time, the publishers keep each flow for the length of its lease,
and ``--resume`` takes the flows up.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Final

from spark_replay.replay.flow import ReplayFlow
from spark_replay.replay.flow_plans import FlowPlan
from spark_replay.replay.jobs import Jobs
from spark_replay.replay.progress import Pace, ReplayProgress
from spark_replay.replay.rate import Shares
from spark_replay.replay.request import FindPublishers, FlowReport, ReplayObserver, ReplayRequest, ReplaySettings
from wormhole.host.compiled import warn_interpreted

__all__ = ["Driver"]

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0


class Driver:
    """Runs one replay. ``plans``: its flows with their modes, the largest first. ``find_publishers``: finds publishers
    whose address changed.
    """

    def __init__(
        self,
        request: ReplayRequest,
        settings: ReplaySettings,
        plans: Sequence[FlowPlan],
        find_publishers: FindPublishers,
        jobs: Jobs,
        observer: ReplayObserver,
    ) -> None:
        self._request = request
        self._clock = settings.clock
        self._jobs = jobs
        self._observer = observer
        self._pace = Pace()
        self._at_once = min(request.at_once, len(plans)) or 1
        self._no_executor = False
        shares = Shares(request.rate, request.rate / self._at_once)
        self.runs = [ReplayFlow(plan, request, settings, find_publishers, jobs, observer, shares) for plan in plans]

    def run(self) -> list[FlowReport]:
        """Hold every flow, push it, hand it over. An error of one flow ends only that flow, and is in its report.

        Raises :class:`~wormhole.model.errors.WormholeError` if a flow cannot be held. Only flows that the replay had
        before this call stay held then.
        """
        warn_interpreted("spark_replay")
        with self._leases():
            self.begin()  # holding many flows may take longer than a lease
            with ThreadPoolExecutor(self._at_once, thread_name_prefix="replay") as pool:
                futures = [pool.submit(run.run) for run in self.runs]
                try:
                    self._look()  # progress is reported from the first second on
                    while wait(futures, timeout=_LOOK_S).not_done:
                        self._look()
                except BaseException:  # Ctrl-C
                    for future in futures:
                        future.cancel()
                    for run in self.runs:
                        run.stopped.set()
                    self._jobs.stop()
                    while wait(futures, timeout=_LOOK_S).not_done:
                        self._jobs.stop()  # also what was about to be submitted
                    raise
        self._observer.moves(self.progress())
        return [future.result() for future in futures]

    def begin(self) -> None:
        """Take the flows from the live log, all or none.

        After an error, resumed flows stay with the replay: their progress is stored with it.
        """
        begun: list[ReplayFlow] = []
        try:
            for run in self.runs:
                begun.append(run)
                run.begin()
        except BaseException:
            for run in begun:
                if not run.plan.begun:
                    run.give_back()
            raise

    def _look(self) -> None:
        """Report the progress, and when the cluster loses its last executor or has executors again."""
        executors = self._jobs.executors
        progress = self.progress()
        if executors == 0 and not self._no_executor:
            finished, flows = progress.flows
            self._observer.says(
                f"the cluster runs no executor: {flows - finished} flows wait for one and stay held. If none comes, "
                "see on the cluster manager's page whether workers are up and have free cores and memory"
            )
        elif executors and self._no_executor:
            self._observer.says(f"the cluster runs {executors} executors again")
        self._no_executor = executors == 0
        self._observer.moves(progress)

    def progress(self) -> ReplayProgress:
        """The progress of all flows together."""
        runs = self.runs
        return self._pace.look(
            self._clock.monotonic(),
            sum(run.done_rows() for run in runs),
            sum(run.rows for run in runs),
            sum(run.pushed[0] for run in runs),
            sum(run.pushed[1] for run in runs),
            (sum(run.finished for run in runs), len(runs)),
            0 if self._no_executor else sum(run.pushing for run in runs),
        )

    @contextmanager
    def _leases(self) -> Iterator[None]:
        """Within the block, keep the leases and read the progress of the flows.

        Each log has a thread, so that a publisher that hangs does not end the leases of another publisher's flows.
        """
        ended = threading.Event()
        every = min(_LOOK_S, self._request.lease_s / 3)
        logs: dict[tuple[str, str, str], list[ReplayFlow]] = {}
        for run in self.runs:
            logs.setdefault(run.log, []).append(run)

        def keep(runs: Sequence[ReplayFlow]) -> None:
            while not ended.wait(every):
                for run in runs:
                    if run.finished:
                        continue
                    try:
                        found = run.renew()
                        if found is not None:
                            for other in runs:  # separate failed calls would together take longer than a lease
                                other.move(found)
                    except Exception:  # noqa: BLE001 - the leases of the other flows are kept
                        _log.exception("%s: internal error, its lease is not kept", run.plan.flow)

        threads = [threading.Thread(target=keep, args=(runs,), name="leases", daemon=True) for runs in logs.values()]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            ended.set()
            for thread in threads:
                thread.join(_LOOK_S)
