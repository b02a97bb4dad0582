"""The faults around parked updates."""

from __future__ import annotations

from tests.mutants.runner import Fault

PARKING_FAULTS: list[Fault] = [
    Fault(
        name="keyed-row-beside-an-update-without-a-key",
        file="subscriber_sdk/work/keyorder.py",
        old="for one in (key, key[:1]) if one in self._last",
        new="for one in (key,) if one in self._last",
        tests=("tests/unit/subscriber_sdk/work/test_parallel.py",),
        promise="with concurrency a row does not overtake an update of its table without a key",
    ),
    Fault(
        name="overtaken-update-without-a-key",
        file="wormhole/wire/update.py",
        old="        if barrier or not row.key:\n",
        new="        if barrier:\n",
        tests=("tests/unit/wormhole/ports/test_dead_letters.py", "tests/integration/test_sdk_parking.py"),
        promise="nothing of a table overtakes its parked update that has no key",
    ),
    Fault(
        name="parked-counts-before-it-is-stored",
        file="subscriber_sdk/work/parking.py",
        old="            refused = await answer\n",
        new='            refused = ""\n',
        tests=(
            "tests/unit/subscriber_sdk/work/test_recovery.py::test_nothing_counts_as_parked_before_the_publisher_says_so",
        ),
        promise="an update is parked durably before it counts as processed",
    ),
    Fault(
        name="parked-is-answered-before-it-is-stored",
        file="publisher/flows/dead_letters.py",
        old="        await self._threads.run(flow.application, partial(self._store.park, "
        "flow.key, epoch, letter, parcel), charge)\n",
        new="        asyncio.get_running_loop().call_later(9, self._store.park, flow.key, epoch, letter, parcel)\n",
        tests=("tests/unit/publisher/flows/test_dead_letters.py",),
        promise="what the publisher says is parked is durable",
    ),
    Fault(
        name="delivered-again-and-deleted-before-the-ack",
        file="publisher/flows/dead_letters.py",
        old="            if acked is None or not await acked:\n",
        new="            if acked is None:\n",
        tests=("tests/unit/publisher/flows/test_dead_letters.py",),
        promise="a parked update is kept until a datamarker behind it is acknowledged",
    ),
    Fault(
        name="handled-although-its-row-is-parked",
        file="subscriber_sdk/calls/gate.py",
        old="            return Verdict.PARK\n",
        new="            return Verdict.CALL\n",
        tests=("tests/unit/subscriber_sdk/calls/test_callbacks.py",),
        promise="nothing of a row overtakes an update of it that is parked",
    ),
    Fault(
        name="log-overtakes-what-is-delivered-again",
        file="publisher/flows/subscriber_answers.py",
        old="        if flow.parking.next_again is not None:",
        new="        if flow.parking.next_again is not None and not self._begin(stream, flow):",
        tests=("tests/integration/test_dead_letters.py",),
        promise="parked updates are delivered again before anything new",
    ),
    Fault(
        name="former-owner-parks",
        file="publisher/stores/dead_letters/rules.py",
        old="    if stored != epoch:",
        new="    if stored is None:",
        tests=("tests/contract/test_dead_letters.py",),
        promise="a former owner parks nothing any more",
    ),
    Fault(
        name="assignment-larger-than-the-subscriber-takes",
        file="wormhole/push/session.py",
        old=" + _ASSIGN_BYTES - self.max_frame_bytes)",
        new=" + _ASSIGN_BYTES - self.hello.max_frame_bytes)",
        tests=("tests/unit/wormhole/push/test_session.py",),
        promise="parked rows that a subscriber cannot be told of end no stream: the flow waits and says why",
    ),
    Fault(
        name="park-that-cannot-be-read-is-the-publishers-failure",
        file="wormhole/push/parking.py",
        old="        rows, op = update.rows(), update.op.value\n    except DecodeError as error:\n",
        new="        rows, op = update.rows(), update.op.value\n    except UnicodeDecodeError as error:\n",
        tests=("tests/unit/wormhole/push/test_parking.py::test_what_makes_no_sense_is_refused",),
        promise="whatever a subscriber sends ends its stream with a reason, and nothing else",
    ),
    Fault(
        name="task-of-a-replay-says-parked-before-it-is",
        file="spark_replay/replay/delivery.py",
        old="                refused = await asyncio.to_thread(self.park, wanted.letter, wanted.parcel)\n",
        new='                refused, _ = "", asyncio.create_task(asyncio.to_thread(self.park, wanted.letter, '
        "wanted.parcel))\n",
        tests=("tests/unit/spark_replay/replay/test_delivery.py",),
        promise="in a replay too an update is parked durably before its subscriber is told",
    ),
    Fault(
        name="replay-overtakes-what-is-to-be-delivered-again",
        file="publisher/push/flow.py",
        old="rows(replayed=self.control.replay is not None)",
        new="rows(replayed=False)",
        tests=("tests/integration/test_replay_parking.py",),
        promise="in a replay too nothing of a row overtakes an update of it that is parked",
    ),
    Fault(
        name="replay-forgets-what-it-parked",
        file="publisher/operate/replay_requests.py",
        old="            parked=rows_to_messages(found.parked.items()),\n",
        new="",
        tests=("tests/integration/test_replay_parking.py",),
        promise="what a task parked is parked for the next one too",
    ),
]
