"""The faults of what is configured and coordinated; :mod:`tests.mutants.faults` lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_CONTRACT = "tests/contract/test_coordinator.py"

CONFIGURATION_FAULTS: list[Fault] = [
    Fault(
        name="another-operators-change-overwritten",
        file="wormhole/coordination/config_store.py",
        old='            transaction.set_data(self._paths.config, b"", version=change.seen)\n',
        new='            transaction.set_data(self._paths.config, b"")\n',
        tests=(f"{_CONTRACT}::test_of_two_changes_at_once_one_is_refused_and_none_is_half_written",),
        promise="of two who apply at once one is told, and nothing of it is written",
    ),
    Fault(
        name="configuration-half-written",
        file="wormhole/coordination/config_store.py",
        old="                transaction.set_data(path, data)\n",
        new="                client.set_async(path, data)\n",
        tests=(f"{_CONTRACT}::test_a_refused_change_writes_nothing",),
        promise="a configuration is stored whole or not at all",
    ),
    Fault(
        name="broken-node-ends-an-application",
        file="wormhole/coordination/config_store.py",
        old="            return good.get(name) if settings is None and data is not None else settings\n",
        new="            return settings\n",
        tests=("tests/unit/wormhole/coordination/test_zookeeper.py",),
        promise="what was right before goes on when its node turns bad",
    ),
    Fault(
        name="caps-of-the-start-for-ever",
        file="publisher/flows/configured_limits.py",
        old="        self._fleet.change_limits(limits_of(caps, self._fleet.limits.buffer_bytes), cause)\n",
        new="",
        tests=("tests/integration/publisher/flows/test_configured_limits.py",),
        promise="caps on reading hold at once",
    ),
    Fault(
        name="more-caravans-than-allowed-now",
        file="caravan/plan.py",
        old="        self._reduce()\n",
        new="",
        tests=("tests/property/test_plan.py",),
        promise="fewer caravans are left when fewer are allowed",
    ),
    Fault(
        name="monitor-state-of-before-the-outage",
        file="wormhole/coordination/ephemeral_node.py",
        old="        self._data = data\n        self._changed.notify()\n",
        new="        self._changed.notify()\n",
        tests=("tests/unit/wormhole/coordination/test_ephemeral_node.py",),
        promise="what a monitor tells without contact is told when contact is back",
    ),
    Fault(
        name="relative-paths-in-a-publishers-configuration",
        file="wormhole/config/fields.py",
        old="str(path.absolute())",
        new="path.name",
        tests=("tests/unit/wormhole/config/test_load.py",),
        promise="a configuration means the same wherever its JSON is read",
    ),
]
