"""Formats the relay of a log as lines for people or as a JSON object for programs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from wormhole.wire.v1 import admin_pb2
from wormholectl.show.columns import FIGURE, ShownColumn, ShownTable
from wormholectl.show.places import Status, native_place, place_text, shown_place
from wormholectl.show.printer import counted, size, span

if TYPE_CHECKING:
    from publisher.relay.folder import FileState

__all__ = ["RELAY_FILES", "relay_line", "relay_lines", "relay_object"]


def relay_line(relay: admin_pb2.RelayStatus) -> str:
    """The content of the relay, on one line."""
    most = f" of at most {size(relay.budget_bytes)}" if relay.budget_bytes else ""
    holds = f"{size(relay.log_bytes)} of log in {size(relay.bytes)}{most}"
    mode = f" ({relay.mode})" if relay.mode else ""
    state = f"; it does not record: {relay.problem.text}" if relay.HasField("problem") else ""
    return f"relay{mode}: {holds if relay.HasField('tip') else 'nothing is recorded yet'}{state}"


def relay_lines(status: Status, now_s: float) -> Iterable[str]:
    """All lines about the relay, from its publisher's status or from a status that was read from its folder."""
    relay = status.relay
    yield relay_line(relay)
    if relay.HasField("tip"):
        age = f", {span(now_s - relay.begin_committed_s)} ago" if relay.begin_committed_s else ""
        yield f"from {shown_place(status, relay.begin)}{age}, to {shown_place(status, relay.tip)}"
    for before, after in zip(relay.stretches, relay.stretches[1:], strict=False):
        yield f"nothing is recorded from {shown_place(status, before.end)} to {shown_place(status, after.begin)}"
    if relay.mode == "off":
        yield "nothing more is recorded: the files go when every flow has passed them, or with `wormholectl relay trim`"
    if relay.mode == "hold":
        full = "the server keeps more" if relay.keeps_slot else "its oldest file goes: flows that need it lose updates"
        kept = size(relay.slot_budget_bytes)
        yield f"the server keeps at most {kept} for flows that are behind; when the relay is full, {full}"
    if relay.HasField("synced"):
        synced = shown_place(status, relay.synced)
        if relay.unsynced_bytes:
            lost = size(relay.unsynced_bytes)
            yield f"a loss of power would take {lost} of it, what follows {synced}: it is read again"
        else:
            yield f"a loss of power would take nothing of it: synced to {synced}"
    if relay.HasField("held"):
        yield f"only the relay holds what flows need up to {shown_place(status, relay.held)}"
    if relay.readers:
        yield f"{counted(relay.readers, 'reader')} of it now"
    if relay.HasField("problem") and relay.problem.hint:
        yield f"next: {relay.problem.hint}"


def relay_object(status: Status, *, reported: bool = True) -> dict[str, Any] | None:
    """The relay as a JSON object (docs/cli-schema.json: ``relay``); ``None`` for a log without one.

    ``reported``: whether the status is from its publisher."""
    if not status.HasField("relay"):
        return None
    relay = status.relay
    holds = relay.mode == "hold"

    def place(name: str) -> str | None:
        return place_text(getattr(relay, name)) if relay.HasField(name) else None

    return {
        "mode": relay.mode or None,
        "recording": relay.mode != "off" and not relay.HasField("problem") if reported else None,
        "code": relay.problem.code or None,
        "problem": relay.problem.text or None,
        "next": relay.problem.hint or None,
        "bytes": relay.bytes,
        "budget_bytes": relay.budget_bytes,
        "log_bytes": relay.log_bytes,
        "begin": place("begin"),
        "native_begin": native_place(status, relay.begin) if relay.HasField("begin") else None,
        "begin_committed_s": relay.begin_committed_s or None,
        "tip": place("tip"),
        "native_tip": native_place(status, relay.tip) if relay.HasField("tip") else None,
        "synced": place("synced"),
        "unsynced_bytes": relay.unsynced_bytes if holds else None,
        "held": place("held"),
        "slot_budget_bytes": relay.slot_budget_bytes if holds else None,
        "on_full": ("keep_slot" if relay.keeps_slot else "lose") if holds else None,
        "readers": relay.readers,
        "stretches": [{"begin": place_text(one.begin), "end": place_text(one.end)} for one in relay.stretches],
    }


def _result(file: FileState) -> str:
    unfinished = f"{size(file.unfinished)} at its end are not whole yet" if file.unfinished else "right"
    return f"DAMAGED: {file.error}" if file.error else unfinished


RELAY_FILES: Final = ShownTable["FileState"](
    ShownColumn("FILE", "file", lambda file: file.path.name),
    ShownColumn("SIZE", "bytes", lambda file: file.bytes, size),
    ShownColumn("RECORDS", "records", lambda file: file.records, FIGURE),
    ShownColumn(None, "log_bytes", lambda file: file.log_bytes),
    ShownColumn("FROM", "begin", lambda file: None if file.begin is None else str(file.begin.order)),
    ShownColumn("TO", "end", lambda file: None if file.end is None else str(file.end)),
    ShownColumn(None, "unfinished_bytes", lambda file: file.unfinished),
    ShownColumn(None, "error", lambda file: file.error or None),
    ShownColumn("RESULT", None, _result),
    titles=("FILE", "RECORDS", "SIZE", "FROM", "TO", "RESULT"),
)
