"""Faults in what somebody meets first: ``init``, ``up`` and the demo."""

from __future__ import annotations

from tests.mutants.runner import Fault

BEGIN_FAULTS: list[Fault] = [
    Fault(
        name="init-writes-over-what-is-there",
        file="wormholectl/init/commands.py",
        old="    if present and not force:\n",
        new="    if False and present and not force:\n",
        tests=("tests/unit/wormholectl/init/test_commands.py",),
        promise="init writes over nothing unless it is told to",
    ),
    Fault(
        name="init-keeps-the-password",
        file="wormholectl/init/commands.py",
        old="        source = found.configured_url(url, login)\n",
        new="        source = url\n",
        tests=("tests/unit/wormholectl/init/test_commands.py",),
        promise="a password is written into no configuration",
    ),
    Fault(
        name="init-takes-a-database-for-a-pattern",
        file="wormholectl/init/texts.py",
        old="glob.escape(project.database)",
        new="project.database",
        tests=("tests/unit/wormholectl/init/test_texts.py",),
        promise="the application of a database gets its tables and no others, whatever its name",
    ),
    Fault(
        name="lost-record-taken-for-a-new-flow",
        file="publisher/flows/registrar.py",
        old="        if epoch is not None:\n            name",
        new="        if False:\n            name",
        tests=("tests/unit/publisher/flows/test_registrar.py",),
        promise="a flow that was served before never begins at its application's start by itself",
    ),
    Fault(
        name="damaged-record-keeps-its-flow-out",
        file="publisher/stores/markers/local.py",
        old="            wanted = in_place_of(error, wanted.marker, max(wanted.epoch, row[2]), wanted.start)\n",
        new="            raise\n",
        tests=("tests/contract/test_marker_store.py",),
        promise="a command replaces a record that cannot be read",
    ),
    Fault(
        name="moved-rocksdb-taken-for-an-idle-one",
        file="datastores/rocksdb/source.py",
        old="            if not self._is_closed:\n                self._check_there()\n            return None",
        new="            return None",
        tests=("tests/unit/datastores/rocksdb/test_source.py",),
        promise="a log whose database is gone is not waited for in silence",
    ),
    Fault(
        name="up-is-ready-before-anything-runs",
        file="monitor/supervisor.py",
        old="        self._publish()  # at once: ",
        new="        # at once: ",
        tests=("tests/unit/monitor/test_supervisor.py",),
        promise="up says that all runs when it does",
    ),
    Fault(
        name="guard-leaves-what-the-program-left",
        file="wormhole/host/process_guard.py",
        old="            _end_left_behind()\n",
        new="",
        tests=("tests/unit/wormhole/host/test_process_guard.py",),
        promise="nothing that a killed owner had started stays, a monitor's publishers included",
    ),
    Fault(
        name="quickstart-believes-everything",
        file="scripts/quickstart.py",
        old="        if not left:\n            return line\n",
        new="        if not left:\n            return ''\n",
        tests=("tests/unit/scripts/test_quickstart.py",),
        promise="what the quickstart shows is what is printed",
    ),
]
