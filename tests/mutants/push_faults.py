"""The faults of who may push to a subscriber, and how much of it a publisher can take; :mod:`tests.mutants.faults`
lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_BUDGET = "tests/unit/subscriber_sdk/stream/test_outbox.py"
_HOSTILE = "tests/hostile/test_malicious_publisher.py"

PUSH_FAULTS: list[Fault] = [
    Fault(
        name="no-timer-wakes-a-flow-for-its-datamarker",
        file="publisher/push/outgoing.py",
        old="            self._look_again(turn)\n",
        new="            pass\n",
        tests=(
            "tests/unit/publisher/push/test_outgoing.py::test_a_datamarker_is_offered_when_its_interval_has_passed",
        ),
        promise="a flow that has nothing more to send gets its datamarker when the application's interval has passed",
    ),
    Fault(
        name="flow-passes-what-every-flow-looks-at",
        file="caravan/buffer.py",
        old="        for numbers in (self._of_shard.get(shard), self._of_all):\n",
        new="        for numbers in (self._of_shard.get(shard),):\n",
        tests=("tests/unit/caravan/test_buffer.py", "tests/property/test_passing_foreign.py"),
        promise="a gap, or what cannot be decoded, is passed by no flow unseen",
    ),
    Fault(
        name="flow-passes-a-rollback",
        file="caravan/flow.py",
        old="        number = self._cursor if self.inside else buffer.next_of(self.shard, self._cursor)\n",
        new="        number = buffer.next_of(self.shard, self._cursor)\n",
        tests=("tests/property/test_passing_foreign.py",),
        promise="a transaction of which a part was sent and that was rolled back is noticed",
    ),
    Fault(
        name="any-certificate-of-the-authority-may-push",
        file="subscriber_sdk/server/push_server.py",
        old="        names = _names_of(context) if self._options.tls is not None else frozenset()\n",
        new="        names = frozenset(self._options.publishers)\n",
        tests=(f"{_HOSTILE}::test_a_subscribers_certificate_cannot_push",),
        promise="only the publishers that a subscriber names push to it",
    ),
    Fault(
        name="publishers-are-not-bound-to-datasets",
        file="subscriber_sdk/stream/session.py",
        old="        refusal = refusal or self._admission.refuses_dataset(self.peer.names, hello.dataset)\n",
        new="",
        tests=(f"{_HOSTILE}::test_a_publisher_of_another_dataset_takes_no_flow_over",),
        promise="the publisher of a dataset cannot take over the flows of another",
    ),
    Fault(
        name="an-epoch-without-a-successor-is-taken",
        file="subscriber_sdk/stream/session.py",
        old="        if not may_be_exceeded(assign.epoch):\n",
        new="        if assign.epoch > 1 << 64:\n",
        tests=(f"{_HOSTILE}::test_an_epoch_that_nothing_exceeds_keeps_no_publisher_away",),
        promise="no publisher can keep the others away from a shard by an epoch",
    ),
    Fault(
        name="an-epoch-that-nobody-recorded-is-taken",
        file="subscriber_sdk/server/connection.py",
        old="        if self._unchecked is None:\n            self._take(event)\n",
        new="        if self._unchecked is not None:\n            self._take(event)\n",
        tests=(f"{_HOSTILE}::test_an_epoch_that_is_not_recorded_takes_no_flow_over",),
        promise="who cannot write to the coordinator takes no flow from its publisher",
    ),
    Fault(
        name="assigned-before-it-is-recorded",
        file="publisher/flows/assigner.py",
        old="                await self._openings.note(flows)  # subscribers refuse epochs that are not recorded\n",
        new="                pass\n",
        tests=(
            "tests/unit/publisher/flows/test_assigner.py",
            "tests/unit/publisher/flows/test_assigner_failures.py",
        ),
        promise="a subscriber can tell the epochs of a flow's publisher from invented ones",
    ),
    Fault(
        name="invented-shards-are-not-counted",
        file="subscriber_sdk/work/shards.py",
        old="        released = port.hold(assigned.size, ",
        new="        released = port.hold(0, ",
        tests=(f"{_HOSTILE}::test_a_flood_costs_its_publisher_the_stream_and_leaves_nothing",),
        promise="what a publisher makes a subscriber keep is bounded",
    ),
    Fault(
        name="schemas-outlive-their-stream",
        file="wormhole/model/schema.py",
        old="        return _remembered(canonical) if len(canonical) <= _REMEMBERED_BYTES else _parse(canonical)\n",
        new="        return _remembered(canonical)\n",
        tests=(f"{_HOSTILE}::test_invented_schemas_cost_their_publisher_the_stream",),
        promise="what a publisher made a subscriber keep goes with its stream",
    ),
    Fault(
        name="who-comes-last-pays-for-the-room-of-others",
        file="subscriber_sdk/stream/budget.py",
        old="            if largest == account.owner:\n",
        new="            if largest:\n",
        tests=(f"{_BUDGET}::test_room_for_a_small_one_comes_from_the_largest",),
        promise="a publisher that takes too much costs no other one its stream",
    ),
    Fault(
        name="a-body-is-unfolded-before-it-is-looked-at",
        file="wormhole/wire/body.py",
        old="    check_shape(data)\n",
        new="",
        tests=(f"{_HOSTILE}::test_a_flood_costs_its_publisher_the_stream_and_leaves_nothing",),
        promise="a batch takes no multiple of its bytes",
    ),
]
