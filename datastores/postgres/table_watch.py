"""Notices changes of the tables while a publisher runs: new tables that are not published, and published tables whose
changes the server now refuses.
"""

from __future__ import annotations

from collections.abc import Sequence

from datastores.postgres.doctor.publication import addition_to, remedy
from datastores.postgres.tables.identities import MOST_NAMED, Refusal, TableIdentity, named
from wormhole.model.problem import NO_PROBLEM, Problem

__all__ = ["TableWatch"]


class TableWatch:
    """Pure. ``problem``: the tables whose UPDATE and DELETE the server refuses now, with the remedy."""

    def __init__(self, publication: str) -> None:
        self._publication = publication
        self._left_out: frozenset[str] | None = None
        self.problem = NO_PROBLEM

    def observe(self, tables: Sequence[TableIdentity]) -> Problem:
        """Compare the present tables with the last call. Returns the problem of unpublished tables created since, with
        the statement that adds them. Tables that were unpublished at the first call are left out on purpose.
        """
        self.problem = self._refused(tables)
        left_out = {one.sql_name: one for one in tables if not one.published and not one.obstacle}
        known, self._left_out = self._left_out, frozenset(left_out)
        new = [one for name, one in left_out.items() if known is not None and name not in known]
        if not new:
            return NO_PROBLEM
        return Problem(
            f"the publication {self._publication} leaves out {named(new)}, created since: no update of them is "
            "delivered",
            f"if they are wanted:\n{addition_to(self._publication, new[:MOST_NAMED])}",
            code="table-left-out",
        )

    def _refused(self, tables: Sequence[TableIdentity]) -> Problem:
        refused = {reason: [one for one in tables if one.refusal is reason] for reason in Refusal}
        found = {reason: ones for reason, ones in refused.items() if ones}
        if not found:
            return NO_PROBLEM
        return Problem(
            "; ".join(
                f"the server refuses every UPDATE and DELETE of {named(ones)}: {reason.value}"
                for reason, ones in found.items()
            ),
            "\n".join(remedy(ones, self._publication) for ones in found.values()),
            code="key-missing",
        )
