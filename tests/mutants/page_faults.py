"""Faults of the status page and of what every small HTTP server of ours is held to."""

from __future__ import annotations

from tests.mutants.runner import Fault

PAGE_FAULTS: list[Fault] = [
    Fault(
        name="any-host-name-is-answered",
        file="wormhole/host/http_guard.py",
        old='if host == "localhost" or host in names:',
        new='if host.endswith("localhost") or host or host in names:',
        tests=("tests/unit/wormhole/host/test_http_server.py",),
        promise="a stranger's page cannot read loopback by rebinding its name",
    ),
    Fault(
        name="page-green-before-an-answer",
        file="monitor/web/assets/page.js",
        old='answered && !unanswered ? "none" : "unknown"',
        new='publishers.length ? "none" : "unknown"',
        tests=("tests/integration/test_status_page.py",),
        promise="a publisher is unknown until its first answer",
    ),
    Fault(
        name="page-markup-from-text",
        file="monitor/web/assets/page.js",
        old="  if (node.textContent !== text) node.textContent = text;\n",
        new="  if (node.textContent !== text) node.innerHTML = text;\n",
        tests=("tests/integration/test_status_page.py",),
        promise="names are text, whatever they look like",
    ),
    Fault(
        name="page-hides-a-lost-monitor",
        file="monitor/web/assets/page.js",
        old='  show(byId("lost"), true);\n',
        new="",
        tests=("tests/integration/test_status_page.py",),
        promise="old numbers are never shown as if they were new",
    ),
    Fault(
        name="page-too-faint",
        file="monitor/web/assets/page.css",
        old="--ink-soft: #515a65;",
        new="--ink-soft: #8b949f;",
        tests=("tests/integration/test_status_page.py",),
        promise="every text has a contrast of at least 4.5",
    ),
    Fault(
        name="page-shows-what-a-dead-process-told",
        file="monitor/web/snapshot.py",
        old="    if status is None or publisher.phase not in _RUNS:\n",
        new="    if status is None:\n",
        tests=("tests/unit/monitor/web/test_snapshot.py",),
        promise="old numbers are never shown as if they were new",
    ),
    Fault(
        name="page-leaves-out-problems",
        file="monitor/web/snapshot.py",
        old='    flows.sort(key=lambda flow: (_RANK[flow["level"]], flow["flow"], flow["publisher"]))\n',
        new="",
        tests=("tests/unit/monitor/web/test_snapshot.py",),
        promise="of what is bounded the worst comes first",
    ),
    Fault(
        name="page-watchers-without-a-bound",
        file="monitor/web/routes.py",
        old="if len(self._watchers) >= self._most:",
        new="if len(self._watchers) > 1_000_000:",
        tests=("tests/unit/monitor/web/test_routes.py",),
        promise="memory and queues are bounded",
    ),
]
