"""``wormholectl doctor`` for a NameNode of HDFS. It only reads."""

from __future__ import annotations

from typing import Final

from datastores.hdfs.java.name_node import NameNode
from datastores.hdfs.log.places import EditLog
from datastores.hdfs.url import Address
from wormhole.model.errors import UnsupportedLog, UsageError
from wormhole.model.findings import Report, SeenTable, Severity

__all__ = ["check"]

OK: Final = Severity.OK
WARN: Final = Severity.WARN
PROBLEM: Final = Severity.PROBLEM


def check(url: str) -> Report:
    """Findings on the NameNode at a URL.

    Raises :class:`~wormhole.model.errors.SourceUnavailable` and :class:`~wormhole.model.errors.UsageError`.
    """
    address = Address.parse(url)
    report = Report(url, {"server": ", ".join(address.name_nodes)})
    name_node = NameNode(address)
    log = EditLog(name_node)
    try:
        state = name_node.state()
        report.tables += [SeenTable("", folder) for folder in state.folders]
        report.add("folders", OK, f"{len(state.folders)} first folders, each of which is a table")
        if state.safe_mode:
            report.add(
                "safe_mode",
                WARN,
                "the NameNode is in safe mode",
                "what it logged before can be read, and nothing changes until it leaves safe mode",
                "hdfs dfsadmin -safemode get",
            )
        try:
            begin, end = log.begin(), log.end()
        except (UsageError, UnsupportedLog) as error:
            report.add("rights", PROBLEM, error.message, "its edits cannot be read", error.hint or "", error.code)
            return report
        report.facts["edits"] = f"transactions {begin} to {end}"
        report.add("rights", OK, "the account may read the edits")
        report.add("edits", OK, f"transactions {begin} to {end} can be read")
        report.add(
            "not_in_edits",
            WARN,
            "snapshots, quotas, storage policies, leases and blocks are not among the events",
            "no update is sent for them",
            "see docs/hdfs.md",
        )
    finally:
        name_node.stop()
    return report
