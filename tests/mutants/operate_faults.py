"""The faults of what operators change; :mod:`tests.mutants.faults` lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_CONTROL = "tests/integration/publisher/operate/test_control.py"

OPERATE_FAULTS: list[Fault] = [
    Fault(
        name="pause-forgotten-at-a-restart",
        file="publisher/push/flow.py",
        old="        self.control = record.control\n",
        new="",
        tests=(f"{_CONTROL}::test_a_paused_flow_is_finished_and_stays_paused_after_a_restart",),
        promise="a paused flow stays paused when the publisher is started again",
    ),
    Fault(
        name="old-marker-file-refused",
        file="publisher/stores/markers/local.py",
        old="range(found, _FORMAT):",
        new="range(_FORMAT, _FORMAT):",
        tests=("tests/unit/publisher/stores/markers/test_local.py::test_a_file_of_format_1_is_taken_over",),
        promise="markers of a former release are taken over",
    ),
    Fault(
        name="late-ack-undoes-a-rewind",
        file="publisher/flows/records.py",
        old="        flow.moved(epoch, to, move)\n",
        new="        flow.moved(flow.holding.epoch, to, move)\n",
        tests=(f"{_CONTROL}::test_an_ack_of_before_the_rewind_does_not_undo_it",),
        promise="a marker that was set back is not moved on by an ack of before",
    ),
    Fault(
        name="move-without-an-answer-forgotten",
        file="publisher/flows/records.py",
        old="                    if counts:\n",
        new="                    if not counts:\n",
        tests=(f"{_CONTROL}::test_a_move_that_the_store_made_before_it_failed_takes_effect",),
        promise="a move that the marker store made takes effect, although its answer was lost",
    ),
    Fault(
        name="any-certificate-administers",
        file="publisher/operate/admin_access.py",
        old="        permitted = [name for name in known if name in self.admins]\n",
        new="        permitted = known\n",
        tests=(
            "tests/integration/publisher/operate/test_admin.py::test_with_tls_a_listed_certificate_permits_and_a_subscribers_does_not",
        ),
        promise="a subscriber's certificate changes nothing",
    ),
    Fault(
        name="preview-makes-the-change",
        file="publisher/operate/control.py",
        old="            if request.preview:\n",
        new="            if request.preview and not before:\n",
        tests=(f"{_CONTROL}::test_a_paused_flow_is_finished_and_stays_paused_after_a_restart",),
        promise="a preview changes nothing",
    ),
    Fault(
        name="change-cut-with-its-client",
        file="publisher/operate/admin.py",
        old="        return await asyncio.shield(task)\n",
        new="        return await task\n",
        tests=(
            "tests/integration/publisher/operate/test_admin.py::test_a_change_is_finished_when_its_client_hangs_up",
        ),
        promise="a change that was begun is finished and kept in the history",
    ),
    Fault(
        name="skipped-before-it-is-durable",
        file="publisher/flows/records.py",
        old="                done = await asyncio.to_thread(self.store.set_control, flow.key, wanted, was)\n",
        new="                flow.controlled(wanted)\n"
        "                done = await asyncio.to_thread(self.store.set_control, flow.key, wanted, was)\n",
        tests=(f"{_CONTROL}::test_a_store_that_fails_changes_nothing",),
        promise="what an operator asks for counts once it is stored",
    ),
    Fault(
        name="time-within-a-second-passed-over",
        file="datastores/rocksdb/history/time_index.py",
        old="            latest = at_us - _RESOLUTION_US * (1 + len(self._entries) // _THIN)\n",
        new="            latest = at_us + _RESOLUTION_US\n",
        tests=("tests/unit/datastores/rocksdb/history/test_time_index.py",),
        promise="going back to a time passes over nothing that was committed later",
    ),
    Fault(
        name="one-damaged-record-holds-all",
        file="publisher/flows/assigner.py",
        old="                if error.flow is None:\n                    raise\n",
        new="                raise\n",
        tests=(
            "tests/unit/publisher/flows/test_assigner_failures.py::test_what_is_damaged_of_one_flow_holds_that_flow_only",
        ),
        promise="what is wrong with one flow's record stops that flow only",
    ),
    Fault(
        name="former-holder-forgotten",
        file="publisher/flows/assigner.py",
        old="                self._former[flow.key] = flow\n",
        new="                pass\n",
        tests=(
            "tests/unit/publisher/flows/test_assigner.py::test_a_handler_of_an_application_that_was_gone_for_a_moment_is_waited_for",
        ),
        promise="one shard of one application is at one subscriber at a time, also when its application was gone for a "
        "moment",
    ),
    Fault(
        name="descriptors-for-strangers",
        file="publisher/operate/admin.py",
        old='        ("grpc.max_allowed_incoming_connections", MOST_CONNECTIONS),\n',
        new="",
        tests=(
            "tests/integration/publisher/operate/test_admin.py::test_strangers_take_a_bounded_number_of_connections",
        ),
        promise="an unauthenticated client cannot take the descriptors that running flows need",
    ),
    Fault(
        name="no-time-is-no-lag",
        file="wormholectl/lag/why.py",
        old=" else flow.lag_s > 0 or flow.lag_bytes > 0\n",
        new=" else flow.lag_s > 0\n",
        tests=("tests/unit/wormholectl/lag/test_why.py::test_each_stage",),
        promise="a flow with log left to deliver is never reported as not behind",
    ),
    Fault(
        name="unknown-age-is-no-lag",
        file="wormhole/wire/lag.py",
        old="        return Lag(None, behind, None, why)\n",
        new="        return Lag(0.0, behind, None)\n",
        tests=("tests/unit/wormholectl/show/test_show.py", "tests/unit/wormholectl/lag/test_why.py"),
        promise="log of unknown age is never shown as in time",
    ),
    Fault(
        name="a-former-log-in-the-servers-words",
        file="wormholectl/show/places.py",
        old="message.incarnation != status.log_end.incarnation",
        new="False",
        tests=("tests/unit/wormholectl/show/test_show.py",),
        promise="a place of an earlier incarnation is never shown as a file of the present log",
    ),
    Fault(
        name="a-table-is-cut-to-the-terminal",
        file="wormholectl/show/printer.py",
        old="    if left_out or _width(widths) > _console().width:\n",
        new="    if False:\n",
        tests=("tests/unit/wormholectl/show/test_show.py",),
        promise="no figure is cut, whatever the width",
    ),
    Fault(
        name="what-follows-is-shown-before-the-log",
        file="wormhole/wire/conditions.py",
        old="    if log.fault or log.state is State.STANDS_BY:\n",
        new="    if log.state is State.STANDS_BY:\n",
        tests=("tests/unit/wormholectl/test_conditions.py",),
        promise="a log that cannot be read is the one cause of each of its flows",
    ),
    Fault(
        name="a-publisher-without-its-log-is-ready",
        file="wormholectl/run/up.py",
        old="    return found.fault or found.state is State.STARTING\n",
        new="    return found.state is State.STARTING\n",
        tests=("tests/unit/wormholectl/run/test_up.py", "tests/unit/wormholectl/test_conditions.py"),
        promise="`up --detach` reports a log that cannot be read",
    ),
    Fault(
        name="a-copy-keeps-decimals-as-text",
        file="wormholectl/init/copy_texts.py",
        old='        return {"decimal": str(value)}\n',
        new="        return str(value)\n",
        tests=("tests/unit/wormholectl/init/test_texts.py",),
        promise="what `init` writes keeps every value with its type",
    ),
]
