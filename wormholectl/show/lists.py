"""Turns what publishers report into a table for people or one object for programs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from wormhole.admin.admin_service import Answer, publisher_name
from wormhole.model.problem import Problem
from wormhole.wire.conditions import Condition, State, log_condition, other_warnings
from wormholectl.exit_codes import UNREACHABLE
from wormholectl.show.places import Status, native_place, place_text
from wormholectl.show.printer import print_json, print_table, print_text, print_warnings
from wormholectl.show.relays import relay_object

__all__ = ["Listing", "condition_object", "short_cause", "show"]

_CAUSE_WIDTH: Final = 60


@dataclass(frozen=True, slots=True)
class Listing:
    """A list that publishers report: its ``name`` in JSON, columns of the table (the last is the cause), and how an
    item becomes a row or an object.

    ``notes``: lines below the table. ``spare``: columns that a narrow terminal lacks, the first one first.
    """

    name: str
    columns: tuple[str, ...]
    rows: Callable[[Status], Iterable[Sequence[str]]]
    objects: Callable[[Status], Iterable[dict[str, Any]]]
    notes: Callable[[Status], Iterable[str]] = lambda status: ()
    spare: tuple[str, ...] = ()


def show(
    listing: Listing,
    answers: Sequence[Answer],
    as_json: bool,
    more: Mapping[str, Any] = MappingProxyType({}),
    below: Callable[[], None] = lambda: None,
) -> int:
    """Print what the publishers reported, and which hosts are drained; those that do not answer are warned about.

    ``more``: further fields in JSON; ``below``: prints what follows the table. Returns the exit code.
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
        unreachable = [{"address": answer.address, "problem": answer.problem} for answer in silent]
        about = {"publishers": [_summary(answer, status) for answer, status in answered]}
        named = {} if listing.name in about else {listing.name: items}
        away = [{"host": one.host, "by": one.by or None, "publishers": list(one.logs)} for one in drained]
        print_json({**about, **named, **more, "drained": away, "unreachable": unreachable})
    else:
        several = len(answered) > 1 and listing.columns[0] != "PUBLISHER"
        columns = (*listing.columns, "PUBLISHER") if several else listing.columns
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
    """What is wrong with a publisher, each cause once: nothing that is ``shown`` in the table."""
    condition = log_condition(status)
    if condition.cause and condition.state is not State.NO_SHARD and not any(str(condition) in one for one in shown):
        yield condition.problem
    yield from other_warnings(status, condition)


def short_cause(cause: str, causes: dict[str, str]) -> str:
    """A cause that fits into a table; a longer one, often of many rows, is kept in ``causes`` with the sign that stands
    for it, to be printed once below the table.
    """
    if len(cause) <= _CAUSE_WIDTH:
        return cause
    return causes.setdefault(cause, f"[{len(causes) + 1}]")


def condition_object(condition: Condition) -> dict[str, Any]:
    """As an object, for a publisher or a flow (docs/cli-schema.json: ``condition``)."""
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


def _summary(answer: Answer, status: Status) -> dict[str, Any]:
    return {
        "publisher": publisher_name(status),
        "address": answer.address,
        "http_address": status.http_address or None,
        "host": status.host or None,
        "pid": status.pid or None,
        "version": status.version,
        "compiled": list(status.compiled),
        "uptime_s": status.uptime_s,
        "coordination": status.coordination,
        "log_end": place_text(status.log_end) if status.HasField("log_end") else None,
        "native_log_end": native_place(status, status.log_end) if status.HasField("log_end") else None,
        "log_bytes_per_s": status.log_bytes_per_s if status.HasField("log_bytes_per_s") else None,
        "condition": condition_object(log_condition(status)),
        "stuck_s": status.stuck_s if status.HasField("stuck_s") else None,
        "term": status.term or None,
        "candidate": status.candidate or None,
        "standby": _standby(status) if status.HasField("standby") else None,
        "problems": list(status.problems),
        "end_unknown": status.end_unknown or None,
        "relay": relay_object(status),
        "flows": len(status.flows),
        "caravans": len(status.caravans),
        "subscribers": len(status.subscribers),
        "limits": {
            "caravans": status.limits.caravans,
            "read_rate": status.limits.read_rate or None,
            "total_read_rate": status.limits.total_read_rate or None,
            "buffer_bytes": status.limits.buffer_bytes,
            "buffered_bytes": status.limits.buffered_bytes,
        },
    }
