"""The faults of who owns a log and its epochs; :mod:`tests.mutants.faults` lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_SHARDS = "tests/unit/subscriber_sdk/test_shards.py"

OWNER_FAULTS: list[Fault] = [
    Fault(
        name="two-publishers-in-one-epoch",
        file="subscriber_sdk/shards.py",
        old=" or (assigned.epoch == self.epoch and other)",
        new="",
        tests=(f"{_SHARDS}::test_of_two_publishers_in_one_epoch_the_first_keeps_the_shard",),
        promise="an epoch of a shard has one publisher",
    ),
    Fault(
        name="a-taken-flow-is-not-told",
        file="subscriber_sdk/shards.py",
        old="            if former is not None and held_by is not None and peer.differs(former):\n",
        new="            if former is not None and False:\n",
        tests=(f"{_SHARDS}::test_a_publisher_whose_flow_is_taken_is_reported_by_whom",),
        promise="a publisher whose flow another one took does not go on sending",
    ),
    Fault(
        name="served-before-it-is-registered",
        file="publisher/publisher.py",
        old="            await self.ownership.take(info)\n            async with asyncio.TaskGroup() as group:\n",
        new="            async with asyncio.TaskGroup() as group:\n                "
        "group.create_task(self.ownership.take(info))\n",
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
        file="publisher/flows/assigner.py",
        old="return 0 if flow.conflict is None else flow.conflict.held_epoch",
        new="return 0",
        tests=(
            "tests/unit/publisher/test_publisher_epochs.py::test_a_store_that_was_set_back_goes_on_above_the_epoch_that_was_seen",
        ),
        promise="a marker store that was set back does not hold its flows for ever",
    ),
    Fault(
        name="live-while-nothing-is-sent",
        file="publisher/publisher.py",
        old="        if flow.caravan_flow is not None and not self.ownership.may_send():\n"
        "            return PublisherFlowState.HELD\n",
        new="",
        tests=(
            "tests/unit/publisher/test_publisher_epochs.py::test_a_flow_is_not_called_live_while_nothing_may_be_sent",
        ),
        promise="no flow is reported as live while nothing of it can be sent",
    ),
    Fault(
        name="a-rewind-is-forgotten-at-a-restart",
        file="publisher/push/flow.py",
        old="        self.rewound = record.rewound\n",
        new="",
        tests=(
            "tests/unit/publisher/test_publisher_epochs.py::test_a_flow_that_was_set_back_is_delivered_again_whatever_the_application_kept",
        ),
        promise="a rewind is not undone by an application that keeps its own datamarker",
    ),
    Fault(
        name="a-replication-id-in-use-is-taken",
        file="publisher/sources/mysql/id_claims.py",
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
            "tests/unit/publisher/test_publisher_epochs.py::test_a_flow_that_a_subscriber_knows_and_the_store_does_not_is_held",
        ),
        promise="a flow that was served before never begins anew in silence",
    ),
]
