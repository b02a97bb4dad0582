"""The faults around mass replays at the publisher."""

from __future__ import annotations

from typing import Final

from tests.mutants.runner import Fault

_REPLAYS: Final = "tests/unit/publisher/flows/test_replays.py"
_STATES: Final = "tests/unit/publisher/flows/test_replay_states.py"
_TASK: Final = "tests/unit/spark_replay/replay/test_task.py"
_FLOW: Final = "tests/unit/spark_replay/replay/test_flow.py"
_DRIVER: Final = "tests/unit/spark_replay/replay/test_driver.py"
_PIECES: Final = "tests/unit/spark_replay/replay/test_pieces.py"

REPLAY_FAULTS: list[Fault] = [
    Fault(
        name="replay-in-epochs-below-the-subscriber-s",
        file="publisher/flows/replays.py",
        old="self._store.raise_epoch, key, above)",
        new="self._store.raise_epoch, key)",
        tests=(f"{_REPLAYS}::test_a_task_gets_an_epoch_above_the_one_that_its_subscriber_holds",),
        promise="a replay goes on at once above the epochs that a subscriber holds",
    ),
    Fault(
        name="replayed-range-skipped-by-an-application-s-own-datamarker",
        file="publisher/flows/replays.py",
        old="                flow.rewound,\n",
        new="                False,\n",
        tests=(
            f"{_REPLAYS}::test_a_task_learns_that_its_replay_set_the_datamarker_back_until_something_is_acknowledged",
        ),
        promise="a replay of an earlier range begins where it says, also for an application that keeps its own "
        "datamarker",
    ),
    Fault(
        name="rewind-not-passed-on-by-a-replay-s-task",
        file="spark_replay/replay/delivery.py",
        old="            rewound=self.route.rewound,\n",
        new="",
        tests=(f"{_TASK}::test_an_application_that_keeps_its_own_datamarker_gets_what_it_was_set_back_to",),
        promise="an application learns from a replay's task that its flow was set back",
    ),
    Fault(
        name="resumed-with-any-snapshot",
        file="spark_replay/replay/flow_plans.py",
        old="        _check_same(request.id, status, begin, flow.flow)\n",
        new="",
        tests=(
            "tests/unit/spark_replay/replay/test_flow_plans.py::test_a_replay_that_began_with_a_snapshot_is_taken_up",
        ),
        promise="a resumed replay goes on in the rows that it began with",
    ),
    Fault(
        name="latest-over-a-hole-becomes-log",
        file="spark_replay/replay/mode_selection.py",
        old='        if plan.lacks and request.mode == "latest":\n',
        new='        if plan.lacks and request.mode == "none":\n',
        tests=(
            "tests/unit/spark_replay/replay/test_mode_selection.py::test_an_archive_that_lacks_a_part_gives_every_change",
        ),
        promise="a mode that was asked for is taken, or refused",
    ),
    Fault(
        name="one-flow-keeps-all-from-being-resumed",
        file="spark_replay/replay/flow_plans.py",
        old="    if not plans:\n        raise _together(problems)\n",
        new="    if problems:\n        raise _together(problems)\n",
        tests=(
            "tests/unit/spark_replay/replay/test_flow_plans.py::test_a_replay_from_where_the_archive_begins_is_taken_up_and_not_one_from_before",
        ),
        promise="what one flow cannot go on with ends that flow only",
    ),
    Fault(
        name="loss-before-another-is-not-told",
        file="spark_replay/replay/pieces.py",
        old="                if gap is not None:\n                    yield",
        new="                if not gaps:\n                    yield",
        tests=("tests/unit/spark_replay/replay/test_pieces.py::test_of_several_losses_in_a_row_each_is_reported",),
        promise="every range that the archive lacks is told",
    ),
    Fault(
        name="rows-are-computed-to-see-whether-they-can-be",
        file="spark_replay/replay/pieces.py",
        old="        if isinstance(self._batches, Iterator):\n",
        new="        if iter(self._batches) is self._batches:\n",
        tests=("tests/unit/spark_replay/replay/test_pieces.py::test_rows_are_computed_as_often_as_they_are_needed",),
        promise="a task reads and folds its rows no more often than it pushes them",
    ),
    Fault(
        name="rows-that-no-filter-wants-pile-up",
        file="spark_replay/replay/delivery.py",
        old="(piece.offer.due or session.marker_due(push, self.clock.monotonic()))",
        new="session.marker_due(push, self.clock.monotonic())",
        tests=(
            "tests/unit/spark_replay/replay/test_delivery.py::test_an_offer_that_is_due_is_made_though_nothing_was_pushed",
        ),
        promise="a task's memory is bounded whatever its filters leave out",
    ),
    Fault(
        name="snapshot-s-place-is-not-stored",
        file="spark_replay/replay/flow.py",
        old="            what.snapshot.CopyFrom(marker_to_message(range_.begin))\n",
        new="            pass\n",
        tests=(
            "tests/unit/spark_replay/replay/test_flow.py::test_the_publisher_keeps_where_the_snapshot_ends_whose_rows_come_first",
        ),
        promise="a resumed replay goes on in the rows that it began with",
    ),
    Fault(
        name="former-task-of-a-replay-stores",
        file="publisher/flows/replays.py",
        old="        if not run.epoch or epoch != run.epoch or epoch != flow.epoch:\n",
        new="        if not run.epoch:\n",
        tests=(f"{_REPLAYS}::test_what_a_former_task_says_is_refused",),
        promise="only the newest task of a replay moves a flow's datamarker",
    ),
    Fault(
        name="former-driver-of-a-replay-goes-on",
        file="publisher/flows/replay_states.py",
        old="    if not hmac.compare_digest(found.ticket, hashed(ticket)):\n",
        new="    if not ticket:\n",
        tests=(f"{_REPLAYS}::test_who_takes_a_replay_up_puts_the_former_driver_out",),
        promise="of two drivers of a replay only the last one is heard",
    ),
    Fault(
        name="second-replay-of-a-flow",
        file="publisher/flows/replay_states.py",
        old="    if leased and now.state is not ReplayState.NEEDS_REPLAY:\n",
        new="    if leased and now.state is ReplayState.REPLAYING:\n",
        tests=(f"{_REPLAYS}::test_of_two_that_begin_at_one_moment_one_is_refused",),
        promise="a flow is replayed by one at a time",
    ),
    Fault(
        name="silent-driver-goes-live-beyond-the-log",
        file="publisher/flows/replays.py",
        old="                gap = await self._gap(flow.marker)\n                if self._clock",
        new="                gap = None\n                if self._clock",
        tests=(
            "tests/unit/publisher/flows/test_replay_leases.py::test_a_flow_whose_log_is_gone_needs_a_replay_and_says_so",
        ),
        promise="a flow whose replay was given up goes live only where the log holds its datamarker",
    ),
    Fault(
        name="silent-driver-keeps-the-flow",
        file="publisher/flows/replays.py",
        old="                self._background.spawn(self._run_out(flow.key))\n",
        new="                pass\n",
        tests=(
            "tests/unit/publisher/flows/test_replay_leases.py::test_a_driver_that_never_comes_back_after_a_restart_loses_the_flow",
        ),
        promise="a flow is never held by a replay whose driver is gone",
    ),
    Fault(
        name="renewed-too-late",
        file="publisher/flows/replays.py",
        old="                if self._clock.monotonic() >= run.until:",
        new="                if run:",
        tests=("tests/unit/publisher/flows/test_replay_leases.py::test_a_renewal_while_the_log_is_looked_at_counts",),
        promise="a driver that renewed its lease keeps the flow",
    ),
    Fault(
        name="handed-over-beyond-the-log",
        file="publisher/flows/replays.py",
        old="            if gap is not None and not accept_gap:\n",
        new="            if gap is not None and accept_gap:\n",
        tests=(
            "tests/unit/publisher/flows/test_replay_handover.py::test_a_log_that_no_longer_reaches_back_is_reported_with_the_range",
        ),
        promise="a replay hands over only where the log goes on, or with the loss told",
    ),
    Fault(
        name="handed-over-before-the-marker-is-stored",
        file="publisher/flows/replays.py",
        old="            await self._store_marker(flow, run, marker)\n            gap = await",
        new="            gap = await",
        tests=(f"{_REPLAYS}::test_a_flow_is_held_replayed_and_goes_live_where_the_replay_ended",),
        promise="the live flow begins where the replay ended",
    ),
    Fault(
        name="set-back-by-every-task",
        file="publisher/flows/replays.py",
        old="            if not now.attempts and now.begin",
        new="            if now.begin",
        tests=(f"{_REPLAYS}::test_the_datamarker_is_set_back_when_the_first_task_opens",),
        promise="the second task of a replay goes on where the first one was acknowledged",
    ),
    Fault(
        name="replay-to-two-subscribers",
        file="publisher/flows/replays.py",
        old="                self._assigner.lend(flow, now.subscriber)  # the",
        new="                pass  # the",
        tests=(
            "tests/unit/publisher/flows/test_replay_leases.py::test_the_next_task_gets_the_subscriber_at_which_the_former_one_may_still_run",
        ),
        promise="no two subscribers work on a flow at one time, replayed or not",
    ),
    Fault(
        name="other-publishers-replay-overwritten",
        file="publisher/publisher.py",
        old="self.store.set_control, flow.key, wanted, was)",
        new="self.store.set_control, flow.key, wanted)",
        tests=(
            "tests/unit/publisher/flows/test_replay_handover.py::test_what_another_publisher_gave_to_a_newer_task_is_left_alone",
        ),
        promise="what has a flow changes by compare-and-set",
    ),
    Fault(
        name="paused-and-pushed-to",
        file="publisher/flows/replays.py",
        old="            _fenced(run)\n\n    # -- inside",
        new="            pass\n\n    # -- inside",
        tests=(
            "tests/unit/publisher/flows/test_replay_handover.py::test_a_paused_flow_is_taken_and_opened_when_it_is_resumed",
        ),
        promise="what an operator changes ends the epoch of a replay's task",
    ),
    Fault(
        name="resumed-replay-begins-anew",
        file="publisher/flows/replay_states.py",
        old="        return replace(now, who=wanted.who,",
        new="        return replace(wanted, who=wanted.who,",
        tests=(f"{_STATES}::test_the_same_id_goes_on_where_it_stood",),
        promise="a replay that is taken up goes on where it stood",
    ),
    Fault(
        name="live-while-replayed",
        file="publisher/flows/replays.py",
        old="                await self._control(flow, lambda c: _held_for(flow, c, wanted, leased))\n",
        new="                flow.controlled(_held_for(flow, flow.control, wanted, leased))\n",
        tests=(
            "tests/unit/publisher/flows/test_replay_leases.py::test_a_driver_that_never_comes_back_after_a_restart_loses_the_flow",
            "tests/unit/publisher/flows/test_replay_handover.py::test_a_store_that_fails_leaves_everything_as_it_was",
        ),
        promise="that a replay has a flow is durable before its subscriber is asked for it",
    ),
    Fault(
        name="another-file-in-the-archive-is-pushed",
        file="spark_replay/archive/reader.py",
        old="    if found == said and footer.end.order <= entry.end.order:\n",
        new="    if found or said:\n",
        tests=(
            "tests/unit/spark_replay/archive/test_manifest.py::test_a_file_of_another_shard_or_place_is_refused_though_its_checksums_fit",
        ),
        promise="a replay pushes what its shard's manifest names, and nothing that was put in its place",
    ),
    Fault(
        name="task-superseded-by-itself",
        file="spark_replay/replay/task.py",
        old='.opener in ("", self._opener)\n',
        new=".attempts == self._epoch\n",
        tests=(f"{_TASK}::test_an_attempt_of_its_own_whose_answer_was_lost_is_not_another_s",),
        promise="a publisher that dies before it answers a task does not end the flow's replay",
    ),
    Fault(
        name="connection-sends-nothing-while-it-receives-much",
        file="wormhole/push/connection.py",
        old="await self._idle(self._sent_at + self._heartbeat_s - now)",
        new="await self._idle(self._heartbeat_s)",
        tests=(
            "tests/unit/wormhole/push/test_connection.py::test_a_subscriber_that_talks_all_the_time_hears_something_too",
        ),
        promise="a handler that is slow keeps its replay's stream",
    ),
    Fault(
        name="replay-of-a-paused-flow-is-given-up",
        file="spark_replay/replay/task.py",
        old="            if reply.flow.paused:\n",
        new="            if reply.refused:\n",
        tests=(f"{_TASK}::test_a_paused_flow_is_waited_for_without_limit",),
        promise="a replay of a paused flow waits for `flows resume`",
    ),
    Fault(
        name="restart-amid-the-end-fails-the-flow",
        file="spark_replay/replay/flow.py",
        old='                outcome = self._job("log", marker, marker)\n                continue\n',
        new="                raise\n",
        tests=(f"{_FLOW}::test_a_publisher_that_was_started_again_before_the_end_gets_the_flow_opened_once_more",),
        promise="a publisher that is started again amid the end of a replay does not fail the flow",
    ),
    Fault(
        name="live-before-the-end-taken-for-handed-over",
        file="spark_replay/replay/flow.py",
        old="marker_from_message(flow.marker).order >= marker.order",
        new='flow.HasField("marker")',
        tests=(f"{_FLOW}::test_a_flow_that_is_live_behind_the_replay_was_handed_over",),
        promise="a flow counts as handed over only where the live log goes on behind the replay",
    ),
    Fault(
        name="wrong-request-ends-who-renews",
        file="spark_replay/replay/flow.py",
        old="        except WormholeError:\n            pass  # the task hears it too",
        new="        except EpochRefused:\n            pass  # the task hears it too",
        tests=(f"{_FLOW}::test_whatever_a_renewal_comes_to_does_not_end_who_renews",),
        promise="no answer about one flow costs the others their lease",
    ),
    Fault(
        name="unserved-flow-is-a-wrong-request",
        file="publisher/operate/replay_requests.py",
        old="            raise self._unserved(key) or no_flow(",
        new="            raise no_flow(",
        tests=(
            "tests/unit/publisher/operate/test_replay_requests.py::test_a_flow_that_is_not_served_yet_is_no_wrong_request",
        ),
        promise="a replay waits for a flow that is not back yet after a restart",
    ),
    Fault(
        name="storage-away-while-the-archive-grows",
        file="spark_replay/replay/flow.py",
        old="            manifest = self._again(lambda: self._settings.store.read(self.plan.shard))\n",
        new="            manifest = self._settings.store.read(self.plan.shard)\n",
        tests=(f"{_FLOW}::test_storage_that_is_away_for_a_moment_while_the_archive_should_grow_is_waited_for",),
        promise="a replay waits for storage that is away for a moment",
    ),
    Fault(
        name="failed-resume-gives-all-back",
        file="spark_replay/replay/driver.py",
        old="                if not run.plan.begun:\n",
        new="                if run.plan:\n",
        tests=(f"{_DRIVER}::test_a_flow_that_is_taken_up_stays_the_replays_although_another_cannot_be_held",),
        promise="a resume that cannot hold one flow leaves the others with what they came to",
    ),
    Fault(
        name="submitted-while-everything-ends",
        file="spark_replay/replay/driver.py",
        old="                        self._jobs.stop()  # also what",
        new="                        pass  # also what",
        tests=(f"{_DRIVER}::test_what_is_submitted_while_everything_ends_is_ended_too",),
        promise="Ctrl-C leaves no job of a replay running",
    ),
    Fault(
        name="slots-counted-before-executors-come",
        file="spark_replay/replay/job.py",
        old="        jobs.warm()  # first",
        new="        pass  # first",
        tests=("tests/unit/spark_replay/replay/test_job.py::test_tasks_are_counted_once_all_executors_are_there",),
        promise="a cluster replays as many flows at a time as it has slots",
    ),
    Fault(
        name="last-changes-for-a-filter-that-became-another",
        file="spark_replay/replay/task.py",
        old="        if task.by_values is not None and (",
        new="        if task.by_values and (",
        tests=(
            "tests/unit/spark_replay/replay/test_task_latest.py::test_another_filter_that_asks_what_kind_of_change_it_was_ends_the_pass",
        ),
        promise="the last change of each key is never sifted by a filter that it cannot answer",
    ),
    Fault(
        name="connections-that-move-a-marker-are-fruitless",
        file="spark_replay/replay/task.py",
        old="                    if self._come_to != before:\n",
        new="                    if self._updates:\n",
        tests=(f"{_TASK}::test_what_is_stored_counts_although_no_update_was_wanted",),
        promise="a replay whose filter wants nearly nothing is not given up while it goes on",
    ),
    Fault(
        name="last-changes-set-an-application-back",
        file="spark_replay/replay/task.py",
        old='            has = upto(start) if start.order > marker.order else b""\n',
        new='            has = b""\n',
        tests=(
            "tests/unit/spark_replay/replay/test_task_latest.py::test_what_the_application_has_already_is_not_set_back",
        ),
        promise="a replay sets back nothing of what an application says that it has",
    ),
    Fault(
        name="replay-begins-again-where-files-were-merged",
        file="spark_replay/replay/pieces.py",
        old="            at = entry.end\n",
        new="",
        tests=(_PIECES,),
        promise="a task goes on at its place with what merging put there: each update once",
    ),
    Fault(
        name="replay-passes-over-what-retention-took",
        file="spark_replay/replay/plan.py",
        old="    elif begin.order < manifest.begin.order and not manifest.whole:\n",
        new="    elif begin.order < manifest.begin.order and manifest.whole:\n",
        tests=(_PIECES,),
        promise="what the archive let go while it was replayed is told, and nothing is passed over",
    ),
    Fault(
        name="spark-s-configuration-is-read-before-its-java-is-connected",
        file="spark_replay/spark/session.py",
        old="            given = _connected(master, settings or {}, said)\n",
        new="            from pyspark import SparkConf\n\n            given = SparkConf()\n            "
        "_connected(master, settings or {}, said)\n",
        tests=("tests/system/test_spark_cluster.py::test_a_replay_runs_where_spark_submit_says",),
        promise="a replay runs on the cluster that spark-submit names, with its settings",
    ),
]
