"""The faults of who owns a log and its epochs; :mod:`tests.mutants.faults` lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_SHARDS = "tests/unit/subscriber_sdk/work/test_shards.py"

_FENCE = "tests/unit/publisher/stores/markers/test_zookeeper_fence.py"
_FORMER = "tests/unit/publisher/flows/test_assigner_former_holders.py"

OWNER_FAULTS: list[Fault] = [
    Fault(
        name="two-publishers-in-one-epoch",
        file="subscriber_sdk/work/shards.py",
        old=" or (assigned.epoch == self.epoch and other)",
        new="",
        tests=(f"{_SHARDS}::test_of_two_publishers_in_one_epoch_the_first_keeps_the_shard",),
        promise="an epoch of a shard has one publisher",
    ),
    Fault(
        name="a-taken-flow-is-not-told",
        file="subscriber_sdk/work/shards.py",
        old="            if former is not None and held_by is not None and peer.differs(former):\n",
        new="            if former is not None and False:\n",
        tests=(f"{_SHARDS}::test_a_publisher_whose_flow_is_taken_is_reported_by_whom",),
        promise="a publisher whose flow another one took does not go on sending",
    ),
    Fault(
        name="served-before-it-is-registered",
        file="publisher/publisher.py",
        old="            await self.ownership.take(self._info())\n            await start_source()\n"
        "            async with asyncio.TaskGroup() as group:\n",
        new="            await start_source()\n            async with asyncio.TaskGroup() as group:\n                "
        "group.create_task(self.ownership.take(self._info()))\n",
        tests=("tests/system/test_owners.py::test_a_second_publisher_serves_nothing_until_the_first_is_gone",),
        promise="a second publisher of a log serves nothing while the first is registered",
    ),
    Fault(
        name="a-dead-predecessors-entry-is-waited-for",
        file="wormhole/coordination/rules.py",
        old="    return same_process or bool(entry.owner and entry.owner == info.owner)\n",
        new="    return same_process\n",
        tests=("tests/unit/wormhole/coordination/test_rules.py::test_which_entry_a_dead_predecessor_left",),
        promise="a publisher that was killed is replaced without waiting for its session",
    ),
    Fault(
        name="kept-out-of-an-emptied-zookeeper",
        file="wormhole/coordination/kazoo_client.py",
        old="            client.last_zxid = 0\n",
        new="",
        tests=(
            "tests/unit/wormhole/coordination/test_kazoo_session.py::test_a_server_that_lost_its_data_is_joined_again",
        ),
        promise="a ZooKeeper that comes back empty at its address is joined without a restart of anything",
    ),
    Fault(
        name="an-emptied-zookeeper-is-obeyed",
        file="wormhole/coordination/config_store.py",
        old="                return dict(good)\n",
        new="",
        tests=(
            "tests/unit/wormhole/coordination/test_config_store.py::test_a_zookeeper_without_any_configuration_is_not_obeyed",
        ),
        promise="a ZooKeeper that lost its data ends no delivery",
    ),
    Fault(
        name="held-epoch-not-exceeded",
        file="publisher/push/holding.py",
        old="return self.epoch if self.conflict is None else max(self.epoch, self.conflict.held_epoch)",
        new="return self.epoch",
        tests=(
            "tests/integration/publisher/test_publisher_epochs.py::test_a_store_that_was_set_back_goes_on_above_the_epoch_that_was_seen",
        ),
        promise="a marker store that was set back does not hold its flows for ever",
    ),
    Fault(
        name="live-while-nothing-is-sent",
        file="publisher/flows/flow_states.py",
        old="        if flow.delivery.caravan_flow is not None and not self._ownership.may_send():\n"
        "            return PublisherFlowState.HELD\n",
        new="",
        tests=(
            "tests/integration/publisher/test_publisher_epochs.py::test_a_flow_is_not_called_live_while_nothing_may_be_sent",
        ),
        promise="no flow is reported as live while nothing of it can be sent",
    ),
    Fault(
        name="a-rewind-is-forgotten-at-a-restart",
        file="publisher/push/delivery.py",
        old="= record.rewound, record.move, record.last_ack\n",
        new="= False, record.move, record.last_ack\n",
        tests=(
            "tests/integration/publisher/test_publisher_epochs.py::test_a_flow_that_was_set_back_is_delivered_again_whatever_the_application_kept",
        ),
        promise="a rewind is not undone by an application that keeps its own datamarker",
    ),
    Fault(
        name="a-move-is-stored-without-its-number",
        file="publisher/stores/markers/rules.py",
        old="    move, acked = anew.epoch if counts else stored.move, stored.last_ack\n",
        new="    move, acked = stored.move, stored.last_ack\n",
        tests=("tests/contract/test_marker_store.py::test_a_move_is_stored_with_its_number_until_the_next_one",),
        promise="an application that keeps its own datamarker makes every move",
    ),
    Fault(
        name="a-move-passes-over-what-a-target-lost",
        file="subscriber_sdk/subscriber.py",
        old="        return self.last_ack is not None and (kept.move, kept.marker.order) < self.last_ack\n",
        new="        return False\n",
        tests=(
            "tests/contract/sinks/test_sql.py::TestMirror::test_an_older_copy_of_the_target_is_filled_from_its_datamarker",
        ),
        promise="a process that starts behind the restore of a target delivers again what a move would pass over",
    ),
    Fault(
        name="a-move-counts-as-acknowledged",
        file="publisher/stores/markers/rules.py",
        old="    acked = stored.last_ack if write.marker == stored.marker else ",
        new="    acked = ",
        tests=("tests/contract/test_marker_store.py::test_the_last_acknowledgement_is_stored_until_the_next_one",),
        promise="a target that has not adopted a move was not set back",
    ),
    Fault(
        name="a-rewind-is-repeated-after-a-death",
        file="wormhole/push/moves.py",
        old="    return rewound and (not move or is_from_before(move, known=known))\n",
        new="    return rewound\n",
        tests=(
            "tests/integration/publisher/test_publisher_epochs.py::test_a_rewind_is_delivered_once_although_the_publisher_dies_twice_after_it",
        ),
        promise="a rewind that the application stored is not delivered again",
    ),
    Fault(
        name="a-move-forwards-is-undone-by-an-older-datamarker",
        file="subscriber_sdk/work/flow_worker.py",
        old="    if (numbered and is_from_before(assigned.move, known=move)) or (\n",
        new="    if (\n",
        tests=(
            "tests/unit/subscriber_sdk/work/test_flow_worker.py::test_a_move_is_made_once_by_an_application_that_stores_its_number",
        ),
        promise="a datamarker of before a move does not undo it",
    ),
    Fault(
        name="a-replication-id-in-use-is-taken",
        file="datastores/mysql/server/id_claims.py",
        old="            if got and number not in replicas:\n",
        new="            if True:\n",
        tests=("tests/integration/test_mysql_servers.py::TestAnotherReader::test_is_not_thrown_out_and_is_named",),
        promise="a reader does not end the dump of another one that has its replication id",
    ),
    Fault(
        name="epochs-of-an-older-store-are-used-again",
        file="publisher/flows/known_flows.py",
        old="        return await self.epoch_after(flow) if await self._seen(flow) > stored else None\n",
        new="        return None\n",
        tests=(
            "tests/unit/publisher/flows/test_registrar.py::test_an_older_copy_of_the_store_does_not_bring_back_epochs",
        ),
        promise="an epoch of a flow has one owner, also after an older marker store was restored",
    ),
    Fault(
        name="lost-store-taken-for-a-new-application",
        file="publisher/push/epoch_conflict.py",
        old="    return not acknowledged and not refusal.contested",
        new="    return False and not refusal.contested",
        tests=(
            "tests/integration/publisher/test_publisher_epochs.py::test_a_flow_that_a_subscriber_knows_and_the_store_does_not_is_held",
        ),
        promise="a flow that was served before never begins anew in silence",
    ),
    Fault(
        name="a-former-owner-writes",
        file="publisher/stores/guarded_client.py",
        old="        transaction.check(fence, -1)\n",
        new="        pass\n",
        tests=(f"{_FENCE}::test_only_an_owner_writes",),
        promise="a publisher that lost its log writes nothing of it",
    ),
    Fault(
        name="a-lost-claim-taken-for-a-race",
        file="publisher/stores/guarded_client.py",
        old="        if fence and isinstance(results[0], NoNodeError):\n",
        new="        if False:\n",
        tests=(f"{_FENCE}::test_only_an_owner_writes",),
        promise="a publisher that lost its log is told so, not that somebody else writes",
    ),
    Fault(
        name="a-claim-that-was-given-up-checks-nothing",
        file="publisher/stores/guarded_client.py",
        old="        if not fence and self._claimed:\n",
        new="        if False:\n",
        tests=(f"{_FENCE}::test_only_an_owner_writes",),
        promise="what is still under way when a publisher leaves is not written beside the next owner",
    ),
    Fault(
        name="an-owner-reads-what-was-before-its-claim",
        file="publisher/stores/guarded_client.py",
        old="        if self._fence():\n",
        new="        if False:\n",
        tests=(f"{_FENCE}::test_an_owner_reads_nothing_older_than_its_claim",),
        promise="a new owner goes on where the last one stored, also through a server that lags",
    ),
    Fault(
        name="flows-of-a-lost-log-refused-one-by-one",
        file="publisher/stores/markers/zookeeper.py",
        old="            self._client.check()  #",
        new="            pass  #",
        tests=(f"{_FENCE}::test_flows_that_another_owner_took_are_not_refused_one_by_one",),
        promise="a lost log is one error, not one for each flow",
    ),
    Fault(
        name="record-names-the-former-subscriber",
        file="publisher/push/holding.py",
        old="        if self.intended is not None:\n",
        new="        if False:\n",
        tests=(
            "tests/integration/publisher/test_publisher.py::test_the_flow_record_names_the_subscriber_before_it_gets_the_flow",
        ),
        promise="the next owner of a log knows where each handler may run",
    ),
    Fault(
        name="record-forgets-who-is-waited-for",
        file="publisher/push/holding.py",
        old=" or self.lost_from is not None or bool(self.held_until)\n",
        new=" or self.lost_from is not None\n",
        tests=(f"{_FORMER}::test_one_that_is_not_there_is_waited_for",),
        promise="an owner that dies early leaves to the next one what it knew of handlers",
    ),
    Fault(
        name="taken-over-from-a-running-handler",
        file="publisher/flows/assigner.py",
        old='                flow.explain(passing(f"a handler may still run at {at}"))\n                return None\n',
        new='                flow.explain(passing(f"a handler may still run at {at}"))\n',
        tests=(f"{_FORMER}::test_one_that_is_not_there_is_waited_for",),
        promise="one shard of one application is at one subscriber at a time, also when its publisher is another one",
    ),
    Fault(
        name="a-stop-leaves-the-record-as-it-was",
        file="publisher/publisher.py",
        old="        if self.assigner.flows and self.ownership.ours():\n",
        new="        if False:\n",
        tests=(
            "tests/integration/publisher/test_publisher.py::test_a_stop_reports_what_was_released_while_it_is_registered",
        ),
        promise="a log that is handed over waits for no subscriber",
    ),
    Fault(
        name="a-field-of-a-candidate-that-is-not-stored",
        file="wormhole/coordination/records.py",
        old="    promotable: bool = False\n",
        new="",
        tests=("tests/compatibility/test_stored_forms.py",),
        promise="every field of a record is stored under its name",
    ),
]
