"""Makes the object with everything that the status page shows, from the host's state. Its size is bounded. Pure.

Times are seconds since 1970, spans seconds, sizes bytes. A number that is unknown or not finite is ``null``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from monitor.state import HostEvent, HostState, Phase, PublisherState, SinkState
from monitor.web.concerns import Concern, Level, of_flow, of_host, of_publisher, of_sink
from monitor.web.log_scale import Distances, Scale
from wormhole import __version__
from wormhole.config.datastores import native_place
from wormhole.model.position import LogPosition
from wormhole.wire.backfills import backfill_text
from wormhole.wire.conditions import flow_condition, log_condition, step_of_all
from wormhole.wire.lag import lag_of
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = ["SCHEMA", "snapshot"]

SCHEMA: Final = 1
_PUBLISHERS: Final = 100
_SINKS: Final = 100
_FLOWS: Final = 1000
_CARAVANS: Final = 32
_CONCERNS: Final = 50
_NAMES: Final = 4
_EVENTS: Final = 100
_CARAVAN_KINDS: Final = {"split", "merge"}
_FEW: Final = 4
_TEXT: Final = 400
_SENTENCES: Final = 1500
"""The most characters of a cause or a next step. The limit is high, because they contain commands to paste."""
_BINS: Final = 120
_LEVELS: Final = {Level.NONE: "none", Level.ATTENTION: "attention", Level.PROBLEM: "problem"}
_PAINTED: Final = dict.fromkeys(("crash_loop", "data_loss", "halted", "needs_replay"), Level.PROBLEM)


def snapshot(state: HostState, now: float) -> dict[str, Any]:
    """The content of the page at ``now``.

    Bounded lists begin with the worst entries, and ``..._left_out`` counts the rest.
    """
    publishers = sorted(state.publishers.values(), key=lambda publisher: publisher.key)
    concerns: list[tuple[Concern, str, str]] = [(concern, "host", state.host) for concern in of_host(state)]
    shown: list[dict[str, Any]] = []
    flows: list[dict[str, Any]] = []
    for publisher in publishers:
        mine = list(of_publisher(publisher, now))
        concerns += [(concern, "publisher", str(publisher.key)) for concern in mine]
        runs = publisher.phase in _RUNS
        known = [] if publisher.status is None else publisher.status.flows
        status = publisher.status or admin_pb2.PublisherStatus()
        of_flows = [(flow, list(of_flow(status, flow)) if runs else []) for flow in known]
        concerns += [(concern, "flow", flow.flow) for flow, found in of_flows for concern in found[:1]]
        flows += [_flow(publisher, flow, found, runs) for flow, found in of_flows]
        if len(shown) < _PUBLISHERS:
            shown.append(_publisher(publisher, mine, [_worst(found) for _, found in of_flows]))
    sinks = [(sink, list(of_sink(sink))) for _, sink in sorted(state.sinks.items())]
    concerns += [(concern, "sink", sink.key.name) for sink, found in sinks for concern in found]
    concerns.sort(key=lambda entry: -entry[0].level)
    flows.sort(key=lambda flow: (_RANK[flow["level"]], flow["flow"], flow["publisher"]))
    grouped = _grouped(concerns)
    counted = [group["level"] for group in grouped]
    return {
        "schema": SCHEMA,
        "at": now,
        "host": state.host,
        "version": __version__,
        "started": state.started,
        "configuration": _text(state.configuration),
        "coordination": state.coordination,
        "coordination_since": _last(state, "coordination"),
        "drained": state.drained,
        "problems": counted.count(_LEVELS[Level.PROBLEM]),
        "attentions": counted.count(_LEVELS[Level.ATTENTION]),
        "unanswered": sum(map(_is_unanswered, publishers)),
        "concerns": grouped[:_CONCERNS],
        "concerns_left_out": max(0, len(grouped) - _CONCERNS),
        "publishers": shown,
        "publishers_left_out": len(publishers) - len(shown),
        "sinks": [_sink(sink, found) for sink, found in sinks[:_SINKS]],
        "sinks_left_out": max(0, len(sinks) - _SINKS),
        "flows": flows[:_FLOWS],
        "flows_left_out": max(0, len(flows) - _FLOWS),
        "events": [_event(event) for event in _condensed([*reversed(state.events)])[:_EVENTS]],
    }


_RANK: Final = {"problem": 0, "attention": 1, "none": 2}
_STARTS: Final = {Phase.STARTING, Phase.RUNNING}
_RUNS: Final = {Phase.RUNNING, Phase.STOPPING}  # in other phases the status is from a process that has ended


def _is_unanswered(publisher: PublisherState) -> bool:
    """Whether a publisher that should run has not answered yet."""
    return publisher.status is None and publisher.phase in _STARTS


def _condition(publisher: PublisherState) -> dict[str, Any] | None:
    """The publisher's condition, as all commands show it; ``None`` while it does not run or has not answered."""
    if publisher.status is None or publisher.phase not in _RUNS:
        return None
    found = log_condition(publisher.status)
    return {
        "state": found.state.value,
        "cause": _text(found.cause, _SENTENCES),
        "next": _text(found.next_step, _SENTENCES),
    }


def _publisher(publisher: PublisherState, concerns: Sequence[Concern], of_flows: Sequence[Level]) -> dict[str, Any]:
    status = publisher.status
    shown: dict[str, Any] = {
        "publisher": str(publisher.key),
        "phase": publisher.phase.value,
        "level": "unknown" if _is_unanswered(publisher) and not concerns else _LEVELS[_worst(concerns)],
        "problem": _text("; ".join(concern.text for concern in concerns), _SENTENCES),
        "condition": _condition(publisher),
        "pid": publisher.pid,
        "since": publisher.since or None,
        "restarts": publisher.restarts,
        "answered": publisher.answered or None,
        "http": publisher.http,
        "status": None,
    }
    if status is None or publisher.phase not in _RUNS:
        return shown
    limits = status.limits
    shown["status"] = {
        "version": status.version,
        "compiled": bool(status.compiled),
        "uptime_s": _number(status.uptime_s),
        "coordination": status.coordination,
        "term": status.term or None,
        "standby": _standby(status) if status.HasField("standby") else None,
        "log_end": _place(status.log_end) if status.HasField("log_end") else None,
        "native_log_end": native_place(status.source, _position(status.log_end), status.log_base) or None
        if status.HasField("log_end")
        else None,
        "log_bytes_per_s": _number(status.log_bytes_per_s) if status.HasField("log_bytes_per_s") else None,
        "read_bytes_per_s": _number(sum(caravan.bytes_per_s for caravan in status.caravans)),
        "buffer_bytes": limits.buffer_bytes,
        "buffered_bytes": limits.buffered_bytes,
        "relay": _relay(status.relay) if status.HasField("relay") else None,
        "caravans_limit": limits.caravans,
        "caravans_left_out": max(0, len(status.caravans) - _CARAVANS),
        "flows": len(status.flows),
        "subscribers": sum(one.state == "connected" for one in status.subscribers),
        "subscribers_away": sum(one.state != "connected" for one in status.subscribers),
        "line": _line(status, of_flows),
    }
    return shown


def _sink(sink: SinkState, concerns: Sequence[Concern]) -> dict[str, Any]:
    return {
        "sink": sink.key.name,
        "url": _text(sink.url),
        "application": sink.application,
        "phase": sink.phase.value,
        "level": "unknown" if sink.phase is Phase.STARTING and not concerns else _LEVELS[_worst(concerns)],
        "problem": _text("; ".join(concern.text for concern in concerns), _SENTENCES),
        "pid": sink.pid,
        "since": sink.since or None,
        "restarts": sink.restarts,
        "unverified": sink.unverified,
    }


def _standby(status: admin_pb2.PublisherStatus) -> dict[str, Any]:
    return {"owner": _text(status.owner) or None, "text": _text(status.standby.text)}


def _relay(relay: admin_pb2.RelayStatus) -> dict[str, Any]:
    return {
        "mode": relay.mode,
        "recording": not relay.HasField("problem"),
        "bytes": relay.bytes,
        "budget_bytes": relay.budget_bytes,
        "log_bytes": relay.log_bytes,
        "begins": _number(relay.begin_committed_s) or None,
        "holes": max(0, len(relay.stretches) - 1),
        "readers": relay.readers,
    }


def _line(status: admin_pb2.PublisherStatus, of_flows: Sequence[Level]) -> dict[str, Any] | None:
    """Caravans and datamarkers on one axis that ends at the end of the log; ``None`` while that end is unknown."""
    if not status.HasField("log_end"):
        return None
    distances = Distances(
        _position(status.log_end),
        [(_position(flow.marker.order), flow.lag_bytes) for flow in status.flows if flow.HasField("lag_bytes")],
    )
    markers = [_marker_behind(flow, distances) for flow in status.flows]
    caravans = [(caravan, distances.behind(_position(caravan.place))) for caravan in [*status.caravans][:_CARAVANS]]
    places = [*markers, *(behind for _, behind in caravans)]
    oldest = max((behind for behind in places if behind is not None), default=0)
    scale = Scale.reaching(oldest)
    growth = status.log_bytes_per_s if status.HasField("log_bytes_per_s") else 0.0
    return {
        "oldest_bytes": oldest,
        "span_bytes": scale.span,
        "ticks": [{"x": round(scale.at(mark), 4), "behind_bytes": mark} for mark in scale.marks()],
        "caravans": [_caravan(caravan, behind, scale, growth) for caravan, behind in caravans],
        "markers": _bins(zip(markers, of_flows, strict=True), scale),
    }


def _marker_behind(flow: admin_pb2.FlowStatus, distances: Distances) -> int | None:
    if flow.HasField("lag_bytes"):
        return int(flow.lag_bytes)
    return distances.behind(_position(flow.marker.order)) if flow.HasField("marker") else None


def _caravan(caravan: admin_pb2.CaravanStatus, behind: int | None, scale: Scale, growth: float) -> dict[str, Any]:
    far = scale.span if behind is None else behind
    gains = caravan.bytes_per_s - growth
    arrives = far / gains if behind and not caravan.lead and gains > 0 else None
    return {
        "number": caravan.number,
        "lead": caravan.lead,
        "place": _place(caravan.place),
        "x": round(scale.at(far), 4),
        "behind_bytes": behind,
        "buffer_x": round(scale.at(far + caravan.buffered_bytes), 4),
        "buffered_bytes": caravan.buffered_bytes,
        "bytes_per_s": _number(caravan.bytes_per_s),
        "target_bytes_per_s": _number(caravan.target_bytes_per_s) or None,
        "arrives_s": _number(arrives),
        "flows": len(caravan.flows),
        "cause": _text(caravan.cause),
    }


def _bins(markers: Iterable[tuple[int | None, Level]], scale: Scale) -> list[dict[str, Any]]:
    """A histogram of datamarkers: the number in each small piece of the axis, and their worst level."""
    counts: dict[int, int] = {}
    levels: dict[int, Level] = {}
    for behind, level in markers:
        piece = round(scale.at(scale.span if behind is None else behind) * _BINS)
        counts[piece] = counts.get(piece, 0) + 1
        levels[piece] = max(level, levels.get(piece, Level.NONE))
    return [
        {"x": round(piece / _BINS, 4), "flows": counts[piece], "level": _LEVELS[levels[piece]]}
        for piece in sorted(counts)
    ]


def _flow(
    publisher: PublisherState, flow: admin_pb2.FlowStatus, concerns: Sequence[Concern], runs: bool
) -> dict[str, Any]:
    """One flow. ``runs``: whether its publisher runs. If it does not run, only lasting fields are shown."""
    if not runs:
        flow = admin_pb2.FlowStatus(
            flow=flow.flow, state="stopped", epoch=flow.epoch, updates=flow.updates, paused=flow.paused, lag_s=math.nan
        )
    lag = lag_of(publisher.status or admin_pb2.PublisherStatus(), flow)
    worst = concerns[0] if concerns else None
    cause = f"paused by {flow.paused}" if flow.paused else flow.cause
    if runs and not flow.paused and publisher.status is not None:
        cause = flow_condition(publisher.status, flow).cause or cause
    backfill = backfill_text(flow)
    return {
        "flow": _text(flow.flow),
        "publisher": str(publisher.key),
        "state": "paused" if flow.paused else flow.state,
        "level": _LEVELS[_worst(concerns)],
        "subscriber": _text(flow.subscriber),
        "epoch": flow.epoch,
        "lag_s": _number(lag.seconds),
        "lag_unknown": _text(lag.unknown),
        "lag_bytes": lag.bytes,
        "lag_transactions": lag.transactions,
        "reads_relay": flow.reads_relay,
        "headroom_s": _number(flow.headroom_s) if flow.HasField("headroom_s") else None,
        "headroom_unknown": _text(flow.headroom_unknown),
        "in_flight": flow.in_flight,
        "credit": flow.credit,
        "caravan": flow.caravan or None,
        "updates": flow.updates,
        "cause": _text("; ".join(concern.text for concern in concerns) or cause),
        "backfill": _backfill(flow.backfill, backfill) if backfill else None,
        "who": worst.who if worst else "",
        "next": _text(worst.next) if worst else "",
    }


def _backfill(status: admin_pb2.BackfillStatus, text: str) -> dict[str, Any]:
    return {"text": _text(text), "share": _number(status.share) if status.HasField("share") else None}


def _grouped(concerns: Iterable[tuple[Concern, str, str]]) -> list[dict[str, Any]]:
    """Concerns grouped by cause. Each group has the text of its first concern, the first names, and their number."""
    groups: dict[tuple[Level, str, str], list[tuple[Concern, str]]] = {}
    for concern, about, name in concerns:
        groups.setdefault((concern.level, about, concern.shared or concern.text), []).append((concern, name))
    return [
        {
            "level": _LEVELS[level],
            "about": about,
            "names": [_text(name) for _, name in found[:_NAMES]],
            "count": len(found),
            "text": _text(found[0][0].text, _SENTENCES),
            "code": found[0][0].code,
            "who": found[0][0].who,
            "next": _text(step_of_all([concern.next for concern, _ in found]), _SENTENCES),
        }
        for (level, about, _), found in groups.items()
    ]


def _worst(concerns: Iterable[Concern]) -> Level:
    return max((concern.level for concern in concerns), default=Level.NONE)


def _condensed(events: Sequence[HostEvent]) -> list[HostEvent]:
    """The events, newest first. Consecutive splits and merges are joined into one event, so that other events stay
    visible.
    """
    found: list[HostEvent] = []
    for (caravans, subject), run in groupby(events, lambda event: (event.kind in _CARAVAN_KINDS, event.subject)):
        same = list(run)
        if not caravans or len(same) <= _FEW:
            found += same
            continue
        splits = sum(event.kind == "split" for event in same)
        text = f"{splits} splits and {len(same) - splits} merges; the last: {same[0].text}"
        found.append(HostEvent(same[0].at, "caravans", subject, text))
    return found


def _event(event: HostEvent) -> dict[str, Any]:
    return {
        "at": event.at,
        "kind": event.kind,
        "subject": _text(event.subject),
        "text": _text(event.text),
        "level": _LEVELS[_PAINTED.get(event.kind, Level.NONE)],
    }


def _last(state: HostState, kind: str) -> float | None:
    return next((event.at for event in reversed(state.events) if event.kind == kind), None)


def _position(message: push_pb2.Position) -> LogPosition:
    return LogPosition(message.incarnation, message.file, message.offset)


def _place(message: push_pb2.Position) -> str:
    return str(_position(message))


def _number(value: float | None) -> float | None:
    return round(value, 3) if value is not None and math.isfinite(value) else None


def _text(text: str, most: int = _TEXT) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
