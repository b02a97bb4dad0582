"""Faults in what bounds a subscriber at its publisher; :mod:`tests.mutants.faults` lists them with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

_HOSTILE = "tests/hostile/test_malicious_subscriber.py"
_ROOM_TESTS = ("tests/unit/wormhole/push/test_room.py",)

BOUNDS_FAULTS: list[Fault] = [
    Fault(
        name="any-number-of-windows-in-a-frame",
        file="wormhole/push/session.py",
        old='        check_count(frame.processed, MOST_WINDOWS, f"{type(frame).__name__.lower()}.processed")\n',
        new="",
        tests=(_HOSTILE, "-kmessage"),
        promise="every list of a peer has a bound, whatever frame it comes in",
    ),
    Fault(
        name="any-number-of-frames-in-a-message",
        file="wormhole/wire/bounds.py",
        old="        if found > most:\n",
        new="        if False:\n",
        tests=("tests/unit/wormhole/wire/test_bounds.py",),
        promise="a message of two million frames is not taken apart",
    ),
    Fault(
        name="report-that-keeps-its-message",
        file="wormhole/push/session.py",
        old="                    return Reported(flow, _report(frame.report.handler))\n",
        new="                    return Reported(flow, frame.report.handler)\n",
        tests=(_HOSTILE, "-kmessage"),
        promise="what is kept of a report is small, whatever came with it",
    ),
    Fault(
        name="unfinished-updates-outside-the-budget",
        file="wormhole/push/parking.py",
        old="        self.room.take(len(frame.body))\n",
        new="",
        tests=(_HOSTILE, "-kunfinished"),
        promise="what is unfinished of all subscribers counts against one budget",
    ),
    Fault(
        name="small-holder-evicted-for-a-large-one",
        file="wormhole/push/room.py",
        old="        return max((share",
        new="        return min((share",
        tests=_ROOM_TESTS,
        promise="a peer that holds little is never refused because of another one",
    ),
    Fault(
        name="values-of-a-parked-update-not-counted",
        file="wormhole/push/parking.py",
        old="            left -= 1\n            if kind == _ENTRIES:\n",
        new="            if False:\n",
        tests=(_HOSTILE, "-kopened"),
        promise="a parked update is parsed only when its parts are counted",
    ),
    Fault(
        name="stream-read-without-a-rest",
        file="wormhole/push/allowance.py",
        old="        return max(0.0, -self._left / rate)\n",
        new="        return 0.0\n",
        tests=("tests/unit/wormhole/push/test_allowance.py",),
        promise="what the protocol allows is paced where it costs the loop of all",
    ),
    Fault(
        name="each-connection-with-an-allowance-of-its-own",
        file="publisher/push/stream.py",
        old="Connection(self._session, self, self._allowance,",
        new="Connection(self._session, self, self._dialer.reading.allowance(self._clock.monotonic()),",
        tests=(_HOSTILE, "-knew_connection"),
        promise="a subscriber that hangs up and is dialled again may cause no more work",
    ),
    Fault(
        name="round-without-an-end",
        file="publisher/push/outgoing.py",
        old="                if out.bytes >= _ROUND:\n",
        new="                if False:\n",
        tests=(_HOSTILE, "-kround"),
        promise="a subscriber that does not read makes no copy of a batch of each of its flows wait",
    ),
    Fault(
        name="refused-and-dialled-at-once",
        file="publisher/push/redial.py",
        old="        steady = not refused and (",
        new="        steady = (",
        tests=("tests/unit/publisher/push/test_redial.py",),
        promise="who breaks the protocol again and again is dialled less and less often",
    ),
    Fault(
        name="flow-given-away-without-an-end",
        file="publisher/push/flow.py",
        old="        self.spacing.given(now)\n",
        new="",
        tests=(_HOSTILE, "-kgiven"),
        promise="a subscriber that asks again and again costs no epoch each time",
    ),
    Fault(
        name="windows-that-were-never-sent-are-counted",
        file="wormhole/audit/sent_counts.py",
        old=" if one.window in self._windows or one.window in self._reported)\n",
        new=")\n",
        tests=(_HOSTILE, "-knever_sent"),
        promise="a subscriber fills no counts with windows of which it was sent nothing",
    ),
    Fault(
        name="describe-without-pages",
        file="publisher/operate/status.py",
        old="        if count and (size > _PAGE_BYTES or count == _PAGE_FLOWS):\n",
        new="        if False:\n",
        tests=("tests/hostile/test_malicious_admin_client.py",),
        promise="what is told of flows fits a message whatever subscribers say",
    ),
    Fault(
        name="strangers-take-every-place",
        file="publisher/operate/admin.py",
        old="        if not known and self._strangers >= _STRANGERS:\n",
        new="        if False:\n",
        tests=("tests/hostile/test_malicious_admin_client.py", "-kkeep_no_operator_out"),
        promise="an operator finds a place whatever clients without a credential do",
    ),
    Fault(
        name="replay-opened-before-its-ticket-is-seen",
        file="publisher/operate/replay_requests.py",
        old="        self._replays.check(key, request.replay, request.ticket)  # before",
        new="        # before",
        tests=("tests/hostile/test_malicious_admin_client.py", "-kticket"),
        promise="nothing large is made of a request of somebody who may not ask",
    ),
]
