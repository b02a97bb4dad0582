"""Parked updates, gathered from the publishers, as a table and as JSON."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from wormhole.wire.v1 import admin_pb2
from wormholectl import admin_client
from wormholectl.discovery import Where
from wormholectl.guard import UNREACHABLE
from wormholectl.listing import publisher_name
from wormholectl.output import print_json, print_table, print_text
from wormholectl.render import SCHEMA

__all__ = ["letter_object", "show"]


def show(where: Where, flow: str, limit: int, as_json: bool) -> int:
    """Print at most ``limit`` parked updates of each publisher, of one flow or (empty) of all. Returns the exit code.

    Raises :class:`~wormhole.model.errors.WormholeError`.
    """
    answers = admin_client.ask(where)
    if flow:
        answers = [admin_client.owner_of(answers, flow)[0]]
    objects: list[dict[str, Any]] = []
    total = 0
    for answer in answers:
        if answer.status is None:
            continue
        reply = admin_client.dead_letters(answer, flow, limit)
        total += reply.total
        objects += [{"publisher": publisher_name(answer.status), **letter_object(one)} for one in reply.letters]
    silent = [answer for answer in answers if answer.status is None]
    if as_json:
        unreachable = [{"address": answer.address, "problem": answer.problem} for answer in silent]
        print_json({"schema": SCHEMA, "total": total, "dead_letters": objects, "unreachable": unreachable})
    else:
        columns = ("FLOW", "UPDATE", "TABLE", "KEY", "OP", "PARKED", "ERROR")
        rows = [
            (
                one["flow"],
                one["update"],
                one["table"] or "-",
                one["key"],
                one["op"],
                f"{datetime.fromisoformat(one['parked_at']).astimezone():%Y-%m-%d %H:%M:%S}",
                f"{'(delivered again now) ' if one['retrying'] else ''}{one['error']}",
            )
            for one in objects
        ]
        print_table(columns, rows, "no dead letters")
        if total > len(objects):
            print_text(f"{len(objects):,} of {total:,}; --limit shows more")
    for answer in silent:
        print_text(f"warning: {answer.problem}", error=True)
    return UNREACHABLE if silent else 0


def letter_object(letter: admin_pb2.DeadLetter) -> dict[str, Any]:
    """One parked update for programs (docs/cli-schema.json: ``dead-letter``)."""
    return {
        "flow": letter.flow,
        "update": letter.update_id,
        "table": letter.table or None,
        "key": letter.key,
        "op": letter.op,
        "parked_at": datetime.fromtimestamp(letter.parked_at_s, UTC).isoformat().replace("+00:00", "Z"),
        "error": letter.error,
        "bytes": letter.bytes,
        "retrying": letter.retrying,
    }
