"""Combines the reports of several publishers into a table for people or one JSON object for programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Generic, TypeVar

from wormhole.admin.admin_service import Answer, publisher_name
from wormhole.model.problem import Problem
from wormhole.wire.conditions import Condition, State, log_condition, other_warnings
from wormhole.wire.v1 import admin_pb2
from wormholectl.exit_codes import UNREACHABLE
from wormholectl.show.columns import ShownColumn, ShownTable, given
from wormholectl.show.places import Status, native_place, place_text, shown_place
from wormholectl.show.printer import print_json, print_table, print_text, print_warnings, size, span
from wormholectl.show.relays import relay_object

__all__ = [
    "PUBLISHER",
    "Listing",
    "condition_object",
    "problem_object",
    "rate",
    "short_cause",
    "show",
    "unreachable_objects",
]

T = TypeVar("T")

_CAUSE_WIDTH: Final = 60


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """A list from publishers' reports: its ``name`` in JSON, the table of its items, and a function that returns the
    items of a publisher. The last column of the table is the cause.

    ``notes``: lines below the table. ``spare``: columns that a narrow terminal omits, in the order of omission.
    """

    name: str
    table: ShownTable[T]
    items: Callable[[Status], Iterable[T]]
    notes: Callable[[Status], Iterable[str]] = lambda status: ()
    spare: tuple[str, ...] = ()

    def rows(self, status: Status) -> list[Sequence[str]]:
        """The items of a publisher for people."""
        return list(map(self.table.row, self.items(status)))

    def objects(self, status: Status) -> list[dict[str, Any]]:
        """The items of a publisher for programs."""
        return self.table.objects(self.items(status))


def show(
    listing: Listing[Any],
    answers: Sequence[Answer],
    as_json: bool,
    more: Mapping[str, Any] = MappingProxyType({}),
    below: Callable[[], None] = lambda: None,
) -> int:
    """Print the reports of publishers and the drained hosts, and warn about publishers that do not answer.

    ``more``: further fields in JSON; ``below``: prints text after the table. Returns the exit code.
    """
    silent = [answer for answer in answers if answer.silent]
    drained = [answer.drained for answer in answers if answer.drained is not None]
    answered = [(answer, answer.status) for answer in answers if answer.status is not None]
    if as_json:
        items = [
            {"publisher": publisher_name(status), "address": answer.address, **item}
            for answer, status in answered
            for item in listing.objects(status)
        ]
        publishers = [
            {"publisher": publisher_name(status), "address": answer.address, **PUBLISHER.object(status)}
            for answer, status in answered
        ]
        about = {"publishers": publishers}
        named = {} if listing.name in about else {listing.name: items}
        away = [{"host": one.host, "by": one.by or None, "publishers": list(one.logs)} for one in drained]
        print_json({**about, **named, **more, "drained": away, "unreachable": unreachable_objects(silent)})
    else:
        titles = listing.table.titles
        several = len(answered) > 1 and titles[0] != "PUBLISHER"
        columns = (*titles, "PUBLISHER") if several else titles
        causes: dict[str, str] = {}
        rows = [
            (*shown, publisher_name(status)) if several else shown
            for _, status in answered
            for row in listing.rows(status)
            for shown in [(*row[:-1], short_cause(row[-1], causes))]
        ]
        names = ", ".join(publisher_name(status) for _, status in answered)
        empty = f"no {listing.name} at {names}" if names else f"no {listing.name} answer"
        print_table(columns, rows, empty, spare=listing.spare)
        for cause, sign in causes.items():
            print_text(f"{sign} {cause}")
        for _, status in answered:
            for note in listing.notes(status):
                print_text(f"{publisher_name(status)}: {note}" if several else note)
        below()
        for one in drained:
            print_text(str(one))
    shown = {row[-1] for _, status in answered for row in listing.rows(status)} if not as_json else set()
    print_warnings(f"{publisher_name(status)}: {one}" for _, status in answered for one in _wrong(status, shown))
    print_warnings(answer.problem for answer in silent)
    return UNREACHABLE if silent else 0


def _wrong(status: Status, shown: Collection[str]) -> Iterable[Problem]:
    """The problems of a publisher, each cause once, without causes that are ``shown`` in the table."""
    condition = log_condition(status)
    if condition.cause and condition.state is not State.NO_SHARD and not any(str(condition) in one for one in shown):
        yield condition.problem
    yield from other_warnings(status, condition)


def short_cause(cause: str, causes: dict[str, str]) -> str:
    """The text of a cause in a table. A sign replaces a long cause, and ``causes`` maps the cause to the sign, so that
    it is printed once below the table.
    """
    if len(cause) <= _CAUSE_WIDTH:
        return cause
    return causes.setdefault(cause, f"[{len(causes) + 1}]")


def unreachable_objects(silent: Iterable[Answer]) -> list[dict[str, Any]]:
    """Publishers that do not answer, as JSON objects."""
    return [{"address": answer.address, "problem": answer.problem} for answer in silent]


def problem_object(problem: admin_pb2.Problem) -> dict[str, Any]:
    """A problem as a JSON object."""
    return {"code": problem.code or None, "text": problem.text, "next": problem.hint or None}


def rate(bytes_per_s: float) -> str:
    """A rate as text: ``1.5 MiB/s``."""
    return f"{size(bytes_per_s)}/s"


def condition_object(condition: Condition) -> dict[str, Any]:
    """The condition of a publisher or a flow as a JSON object (docs/cli-schema.json: ``condition``)."""
    return {
        "state": condition.state.value,
        "code": condition.code or None,
        "cause": condition.cause or None,
        "next_step": condition.next_step or None,
    }


def _standby(status: Status) -> dict[str, Any]:
    return {
        "owner": status.owner or None,
        "code": status.standby.code or None,
        "waits": status.standby.text,
        "next_step": status.standby.hint or None,
    }


def _limits(status: Status) -> dict[str, Any]:
    limits = status.limits
    return {
        "caravans": limits.caravans,
        "read_rate": limits.read_rate or None,
        "total_read_rate": limits.total_read_rate or None,
        "buffer_bytes": limits.buffer_bytes,
        "buffered_bytes": limits.buffered_bytes,
    }


def _cause(status: Status) -> str:
    condition = log_condition(status)
    return "" if condition.state is State.NO_SHARD else str(condition)


def _attach(attach: admin_pb2.AttachStatus) -> dict[str, Any]:
    return {
        "address": attach.address or None,
        "problem": problem_object(attach.problem) if attach.HasField("problem") else None,
        "connected": attach.attached,
        "refused": {one.code: one.attempts for one in attach.refused},
        "unfinished": attach.unfinished,
    }


PUBLISHER: Final = ShownTable[Status](
    ShownColumn("PUBLISHER", None, publisher_name),
    ShownColumn(None, "http_address", lambda status: status.http_address or None),
    ShownColumn("HOST", "host", lambda status: status.host or None),
    ShownColumn("PID", "pid", lambda status: status.pid or None),
    ShownColumn("VERSION", "version", lambda status: status.version),
    ShownColumn(None, "compiled", lambda status: list(status.compiled)),
    ShownColumn("UP", "uptime_s", lambda status: status.uptime_s, span),
    ShownColumn("COORDINATION", "coordination", lambda status: status.coordination),
    ShownColumn(None, "log_end", lambda status: place_text(status.log_end) if status.HasField("log_end") else None),
    ShownColumn(None, "native_log_end", lambda status: native_place(status, status.log_end)),
    ShownColumn(
        "LOG END", None, lambda status: shown_place(status, status.log_end) if status.HasField("log_end") else None
    ),
    ShownColumn("LOG GROWS", "log_bytes_per_s", lambda status: given(status, "log_bytes_per_s"), rate),
    ShownColumn(None, "condition", lambda status: condition_object(log_condition(status))),
    ShownColumn(None, "stuck_s", lambda status: given(status, "stuck_s")),
    ShownColumn("TERM", "term", lambda status: status.term or None),
    ShownColumn(None, "candidate", lambda status: status.candidate or None),
    ShownColumn(None, "standby", lambda status: _standby(status) if status.HasField("standby") else None),
    ShownColumn(None, "problems", lambda status: list(status.problems)),
    ShownColumn(None, "end_unknown", lambda status: status.end_unknown or None),
    ShownColumn(None, "relay", relay_object),
    ShownColumn(None, "attach", lambda status: _attach(status.attach) if status.HasField("attach") else None),
    ShownColumn("FLOWS", "flows", lambda status: len(status.flows)),
    ShownColumn("CARAVANS", "caravans", lambda status: len(status.caravans)),
    ShownColumn("SUBSCRIBERS", "subscribers", lambda status: len(status.subscribers)),
    ShownColumn(None, "limits", _limits),
    ShownColumn("CAUSE", None, _cause),
    titles=(
        *("PUBLISHER", "HOST", "PID", "VERSION", "UP", "COORDINATION", "LOG END", "LOG GROWS", "FLOWS", "CARAVANS"),
        *("SUBSCRIBERS", "TERM", "CAUSE"),
    ),
)
