"""Faults in what tells operators how publishers do: metrics, readiness and logs."""

from __future__ import annotations

from tests.mutants.runner import Fault

METRICS_FAULTS = [
    Fault(
        name="canary-not-fed",
        file="publisher/flows/housekeeping.py",
        old="            self._tailed.look_at_lead(now)\n",
        new="",
        tests=("tests/integration/publisher/operate/test_http.py",),
        promise="a publisher that lives and reads nothing is not ready",
    ),
    Fault(
        name="waiting-taken-for-stuck",
        file="publisher/flows/progress.py",
        old="        elif seen != self._seen or not behind or waits:\n",
        new="        elif seen != self._seen or not behind:\n",
        tests=("tests/unit/publisher/flows/test_progress.py",),
        promise="a slow subscriber does not make its publisher unready",
    ),
    Fault(
        name="metrics-of-whoever-has-the-port-now",
        file="monitor/metrics.py",
        old='    if [line.rpartition(" ")[0] for line in ready] != [expected]:\n',
        new="    if not ready:\n",
        tests=("tests/unit/monitor/test_metrics.py",),
        promise="a host's metrics hold each publisher once, under its own name",
    ),
    Fault(
        name="unknown-lag-told-as-none",
        file="publisher/operate/flow_reports.py",
        old="        yield c.FLOW_LAG, lag.seconds if lag.seconds or lag.bytes == 0 else None\n",
        new="        yield c.FLOW_LAG, lag.seconds\n",
        tests=("tests/integration/publisher/operate/test_metrics.py",),
        promise="a value that nobody knows is left out",
    ),
    Fault(
        name="a-log-line-per-flow",
        file="publisher/flows/assigner.py",
        old='        self._said.add("flows given away", ',
        new='        _log.info("%s %s %s", "flows given away", ',
        tests=("tests/system/test_log_lines.py",),
        promise="a busy process writes fewer than 30 lines",
    ),
    Fault(
        name="secrets-of-libraries-logged",
        file="wormhole/host/logs.py",
        old="_redacted(value) if isinstance(value, str) else value",
        new="value",
        tests=("tests/unit/wormhole/host/test_logs.py",),
        promise="no secret reaches a log",
    ),
    Fault(
        name="a-reading-for-each-instrument",
        file="wormhole/metrics/otel.py",
        old="            if not self._read or name in self._read:\n",
        new="            if True:\n",
        tests=("tests/unit/wormhole/metrics/test_otel.py",),
        promise="an export reads the state once",
    ),
    Fault(
        name="spans-of-a-thread-without-parent",
        file="subscriber_sdk/calls/handlers.py",
        old="self.pool.submit(copy_context().run, callback, *arguments)",
        new="self.pool.submit(callback, *arguments)",
        tests=("tests/unit/subscriber_sdk/work/test_counts_reported.py",),
        promise="what a handler traces lies within the span of its batch",
    ),
]
