"""Finds the flows and tables of a backfill command, and waits until backfills have ended."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from fnmatch import fnmatchcase
from typing import Final

from wormhole.admin.admin_service import Answer, check_application, nearest, owner_of, publisher_name
from wormhole.host.clock import SYSTEM_CLOCK, Clock
from wormhole.model.errors import Fatal, Retryable, StreamBroken, UsageError
from wormhole.wire.backfills import has_ended
from wormholectl.show.backfills import ReportedBackfill
from wormholectl.show.printer import counted

__all__ = ["backfills_of", "flows_named", "flows_of", "running_of", "tables_of", "wait_until_ended"]

_PATTERN: Final = re.compile(r"[*?\[]")
_EVERY_S: Final = 1.0
_PATIENCE_S: Final = {"held": 60.0, "paused": 60.0, "needs_replay": 60.0, "unassigned": 600.0}
"""By state: the seconds after which a flow is considered stopped until an operator acts."""
_NAMED_AFTER_S: Final = {"unassigned": 10.0}
"""By state: the seconds before a waiting flow is named. Each backfill and verification assigns the flow anew, which
passes through these states."""


def backfills_of(answers: Sequence[Answer], application: str = "") -> list[ReportedBackfill]:
    """The flows of an application, sorted by name, each with its backfill. For an empty ``application``, all flows that
    have a backfill.

    Raises :class:`~wormhole.model.errors.UsageError` if every publisher answers and none has a flow of the application.
    """
    if application:
        check_application(answers, application)
    found = [
        ReportedBackfill(publisher_name(answer.status), flow.flow, flow.backfill if flow.HasField("backfill") else None)
        for answer in answers
        if answer.status is not None
        for flow in answer.status.flows
        if (flow.flow.partition("/")[0] == application if application else flow.HasField("backfill"))
    ]
    return sorted(found, key=lambda one: one.flow)


def flows_of(answers: Sequence[Answer], application: str) -> list[str]:
    """The names of the application's flows.

    Raises :class:`~wormhole.model.errors.UsageError` if no publisher has a flow of it. Raises
    :class:`~wormhole.model.errors.StreamBroken` if a publisher does not answer, because the backfill would begin only
    in some of the flows.
    """
    silent = [answer.problem for answer in answers if answer.may_have(application)]
    if silent:
        raise StreamBroken(
            f"not every publisher answers: {'; '.join(silent)}",
            hint="start that publisher, or name the one whose flows are meant with --publisher",
            code="publisher-silent",
        )
    return [one.flow for one in backfills_of(answers, application)]


def flows_named(answers: Sequence[Answer], which: str) -> list[str]:
    """The names of the flows of ``which``: ``APP`` or ``APP/SHARD``. Raises the errors of :func:`flows_of`."""
    application, slash, _ = which.partition("/")
    if slash:
        return [owner_of(answers, which)[1].flow]
    return flows_of(answers, application)


def running_of(answers: Sequence[Answer], application: str) -> list[str]:
    """The names of the application's flows whose backfill has not ended. Raises the errors of :func:`flows_of`, and
    :class:`~wormhole.model.errors.UsageError` without such a flow.
    """
    flows_of(answers, application)
    flows = [one.flow for one in backfills_of(answers, application) if one.status and not has_ended(one.status)]
    if not flows:
        raise UsageError(
            f"no backfill of {application} runs",
            hint=f"`wormholectl backfill show {application}` shows the last one, `backfill start` begins one",
        )
    return flows


def tables_of(names: Sequence[str], planned: Sequence[ReportedBackfill]) -> dict[str, tuple[str, ...]]:
    """By flow, the tables that match ``names``, which may be shell patterns. Flows without such a table are omitted.

    ``planned``: a preview of a backfill of all tables, for each flow. Raises
    :class:`~wormhole.model.errors.UsageError` for a name that matches no table.
    """
    known = {one.flow: [table.table for table in one.status.progress] if one.status else [] for one in planned}
    tables = {table for of_flow in known.values() for table in of_flow}
    for name in names:
        if tables and not any(fnmatchcase(table, name) for table in tables):
            application = planned[0].flow.partition("/")[0]
            like = nearest(name, tables, "table", f"wormholectl backfill start {application}")
            raise UsageError(
                f"--tables {name}: no such table is among those that the application may receive",
                hint=f"{like}; if the server has it, GRANT SELECT on it to the publisher's account",
                code="table-unknown",
            )
        if not tables and _PATTERN.search(name):
            raise UsageError(
                f"--tables {name}: the publisher does not know yet which tables there are",
                hint="name the tables without a pattern, or repeat the command when the publisher has read its log",
            )
    if not tables:
        return dict.fromkeys(known, tuple(names))
    chosen = {
        flow: tuple(table for table in of_flow if any(fnmatchcase(table, name) for name in names))
        for flow, of_flow in known.items()
    }
    return {flow: of_flow for flow, of_flow in chosen.items() if of_flow}


def wait_until_ended(
    ask: Callable[[], Sequence[Answer]],
    application: str,
    show: Callable[[Sequence[ReportedBackfill], Sequence[str]], None],
    clock: Clock = SYSTEM_CLOCK,
    *,
    flows: Collection[str] = (),
) -> list[ReportedBackfill]:
    """Query the publishers every second until every backfill of the application, or of ``flows``, has ended. Returns
    these backfills.

    ``show``: called in each round with the backfills, and with the problems of publishers that do not answer. Such a
    publisher is queried again. Raises :class:`~wormhole.model.errors.UsageError` without a backfill, and
    :class:`~wormhole.model.errors.Fatal` if none of the unfinished backfills can continue by itself.
    """
    stopped_since: dict[tuple[str, str], float] = {}
    while True:
        try:
            answers = ask()
        except Retryable as error:
            show([], [error.message])
        else:
            found = [
                one
                for one in backfills_of(answers, application)
                if one.status is not None and (not flows or one.flow in flows)
            ]
            problems = [answer.problem for answer in answers if answer.may_have(application)]
            left = {one.flow for one in found if one.status is not None and not has_ended(one.status)}
            stopped = _stopped(answers, left)
            now = clock.monotonic()
            stopped_since = {key: stopped_since.get(key, now) for key in stopped}
            named = (key for key, since in stopped_since.items() if now - since >= _NAMED_AFTER_S.get(key[1], 0.0))
            show(found, [*problems, *(stopped[key] for key in named)])
            if left and {flow for flow, _ in stopped} == left:
                over = [key for key, since in stopped_since.items() if now - since >= _PATIENCE_S[key[1]]]
                if len(over) == len(left):
                    raise _given_up(application, [stopped[key] for key in over], over[0][0])
            if not problems and not found:
                raise UsageError(
                    f"no flow of {application} has a backfill",
                    hint=f"`wormholectl backfill start {application}` begins one",
                )
            if not problems and all(one.status is None or has_ended(one.status) for one in found):
                return found
        clock.pause(_EVERY_S)


def _stopped(answers: Sequence[Answer], flows: Collection[str]) -> dict[tuple[str, str], str]:
    """The flows that do not continue by themselves: name and state to a sentence with the cause."""
    return {
        (flow.flow, flow.state): f"{flow.flow} is {flow.state}{f': {flow.cause}' if flow.cause else ''}"
        for answer in answers
        if answer.status is not None
        for flow in answer.status.flows
        if flow.flow in flows and flow.state in _PATIENCE_S
    }


def _given_up(application: str, stopped: Sequence[str], first: str) -> Fatal:
    more = f" (and {counted(len(stopped) - 1, 'more flow')})" if len(stopped) > 1 else ""
    return Fatal(
        f"nothing is read, and the command does not wait any longer: {stopped[0]}{more}",
        hint=f"`wormholectl why-lag {first}` shows what to do; what was begun goes on when the flow does, and "
        f"`wormholectl backfill show {application}` has the result",
        code="backfill-waiting",
    )
