"""The faults of who may use ZooKeeper; :mod:`tests.mutants.faults` lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_APPLY_ACCESS = "tests/unit/wormhole/coordination/test_apply_access.py"

ACCESS_FAULTS: list[Fault] = [
    Fault(
        name="what-was-open-stays-open",
        file="wormhole/coordination/apply_access.py",
        old='        for path in _tree(client, "/"):\n            _set(client, path)\n',
        new="",
        tests=(f"{_APPLY_ACCESS}::test_a_private_server_takes_over_what_was_open_or_of_lost_credentials",),
        promise="the embedded ZooKeeper of an earlier release is closed with everything that it holds",
    ),
    Fault(
        name="credentials-go-to-whoever-took-the-port",
        file="wormhole/coordination/kazoo_client.py",
        old="            _check_server(self._auth_file, port, server_uids(port, made.getsockname()[1]))\n",
        new="            _check_server(self._auth_file, port, ())\n",
        tests=(
            "tests/hostile/test_zookeeper_access.py::test_a_process_of_another_user_on_our_port_gets_no_credentials",
        ),
        promise="another user's process on the port of ours is sent no credentials",
    ),
    Fault(
        name="a-subscriber-may-register-anywhere",
        file="wormhole/coordination/access.py",
        old="                subscriber = self.subscribers.get(application)\n",
        new="                subscriber = next(iter(self.subscribers.values()), None)\n",
        tests=(f"{_APPLY_ACCESS}::test_a_subscriber_has_its_own_application_only",),
        promise="a subscriber's credentials are for its own application",
    ),
    Fault(
        name="nodes-are-made-open-after-closing",
        file="wormhole/coordination/kazoo_client.py",
        old="        return rights if self.access.closed else [*rights, *OPEN_ACL_UNSAFE]\n",
        new="        return [*rights, *OPEN_ACL_UNSAFE]\n",
        tests=(f"{_APPLY_ACCESS}::test_until_it_is_closed_both_kinds_work_and_who_would_be_locked_out_is_known",),
        promise="what is made after a root was closed is closed too, also by clients that were connected before",
    ),
    Fault(
        name="strangers-fill-the-memory",
        file="wormhole/coordination/embedded_zookeeper.py",
        old="maxCnxns=200\n",
        new="",
        tests=("tests/hostile/test_zookeeper_access.py::test_requests_that_are_never_finished_do_not_end_it",),
        promise="half-sent requests of strangers do not end the embedded ZooKeeper",
    ),
]
