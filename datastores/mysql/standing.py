"""Checks whether a server can serve a log now: its settings, and whether it executed the delivered transactions."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import closing

from datastores.common.next_steps import shortened
from datastores.mysql.doctor.settings import findings
from datastores.mysql.log.gtid_coverage import all_lacking
from datastores.mysql.server.address import Address
from datastores.mysql.server.connection import connect
from datastores.mysql.server.required_settings import refuse
from datastores.mysql.server.settings import Settings, read_settings
from datastores.mysql.server.state import queries_of
from wormhole.model.errors import UnsupportedLog, UsageError
from wormhole.model.findings import Severity
from wormhole.model.problem import NO_PROBLEM, Problem
from wormhole.ports.datastore import Standing

__all__ = ["standing"]


def standing(address: Address, delivered: Collection[str], *, failover: bool) -> Standing:
    """See :meth:`wormhole.ports.datastore.Datastore.standing`."""
    with closing(connect(address)) as connection:
        settings = read_settings(connection)
        queries = queries_of(settings)
        server = queries.identity(connection)
        try:
            refuse(settings, str(address))
            view = queries.view(connection)
        except (UnsupportedLog, UsageError) as error:
            return Standing(server, ready=False, problem=error.problem)
    problem = _without_gtids(settings) if failover else NO_PROBLEM
    gone = all_lacking(view, delivered, mariadb=settings.mariadb)
    return Standing(server, ready=not problem, lacking=shortened(gone), problem=problem)


def _without_gtids(settings: Settings) -> Problem:
    """The problem that another server's place in the log cannot be found here; empty: it can be found."""
    found = next((one for one in findings(settings) if one.check == "gtid_mode"), None)
    if found is None or found.severity is Severity.OK:
        return NO_PROBLEM
    mode = settings.variable("gtid_mode", default="OFF").upper()
    return Problem(
        f"gtid_mode={mode}: a copy without GTIDs cannot serve after another one", found.next_step, code="copy-not-ready"
    )
