"""Faults in what bounds a peer: deadlines, budgets and the translation of errors; :mod:`tests.mutants.faults` lists
them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_BOUNDED = "datastores/mysql/server/bounded_connection.py"
_BOUNDED_TESTS = ("tests/unit/datastores/mysql/server/test_bounded_connection.py",)

ROBUST_FAULTS: list[Fault] = [
    Fault(
        name="mysql-nonsense-not-translated",
        file="datastores/mysql/server/connection.py",
        old="    except Exception as error:\n        if connection is not None:",
        new="    except KeyError as error:\n        if connection is not None:",
        tests=_BOUNDED_TESTS,
        promise="a server that answers nonsense is like one that is away: the publisher keeps running and tries again",
    ),
    Fault(
        name="mysql-rows-of-another-form-not-translated",
        file="datastores/mysql/server/connection.py",
        old="    except (LookupError, ValueError, TypeError, DecodeError, PositionError) as error:",
        new="    except (TypeError, DecodeError, PositionError) as error:",
        tests=_BOUNDED_TESTS,
        promise="rows of another form than a server's are nonsense too",
    ),
    Fault(
        name="mysql-answer-without-a-deadline",
        file=_BOUNDED,
        old="            if left <= 0:\n                raise",
        new="            left = 10.0\n            if left <= 0:\n                raise",
        tests=_BOUNDED_TESTS,
        promise="a server that answers byte by byte stretches no timeout",
    ),
    Fault(
        name="mysql-answer-without-a-budget",
        file=_BOUNDED,
        old="        self._room -= size\n",
        new="        self._room -= 0\n",
        tests=_BOUNDED_TESTS,
        promise="no answer takes more memory than it may, whatever its length fields say",
    ),
    Fault(
        name="mysql-dump-waits-for-each-byte",
        file="datastores/mysql/log/dump.py",
        old="            left = max(0.0, until - now)\n",
        new="            left = wait_s\n",
        tests=("tests/unit/datastores/mysql/log/test_dump.py",),
        promise="a read of the binlog ends when its time is over, however slowly the server sends",
    ),
    Fault(
        name="caravan-closed-with-its-exception",
        file="caravan/fleet.py",
        old="        error = None if task.cancelled() else task.exception()\n        if "
        "self.caravans.pop(caravan.number, None) is None:\n",
        new="        if self.caravans.pop(caravan.number, None) is None:\n            return\n        error = None "
        "if task.cancelled() else task.exception()\n        if False:\n",
        tests=("tests/unit/caravan/test_fleet.py",),
        promise="no task ends with an exception that nobody fetches",
    ),
    Fault(
        name="unknown-operation-raises-a-key-error",
        file="wormhole/wire/rows.py",
        old="    op = _OP.get(number)\n",
        new="    op = _OP[number]\n",
        tests=("tests/unit/wormhole/wire/test_rows.py", "tests/unit/wormhole/push/test_parking.py"),
        promise="what a peer sends is refused as a protocol error, whatever it is",
    ),
    Fault(
        name="loss-range-with-what-was-delivered",
        file="datastores/mysql/log/walk.py",
        old="            name,  # the reader adds the delivered position\n",
        new="            str(self._delivered),\n",
        tests=("tests/unit/datastores/mysql/log/test_reader.py",),
        promise="the range of a loss names what is missing, and nothing that was delivered",
    ),
    Fault(
        name="delivered-log-reported-as-lost",
        file="caravan/flow.py",
        old="        if gap.reached(self.marker.delivered):\n",
        new="        if False:\n",
        tests=("tests/unit/caravan/test_flow.py",),
        promise="a gap in what a flow got long ago is no loss for it",
    ),
]
