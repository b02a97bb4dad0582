"""Prints the results of the commands for sinks, as text or JSON."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sinks.commands.examining import ExaminedSink, SinkFlow
from sinks.settings import ConfiguredSink
from wormhole.model.findings import Finding, Severity
from wormhole.wire.lag import lag_of
from wormholectl.doctor.show import show_report
from wormholectl.show.flows import flow_object, lag_text
from wormholectl.show.lists import short_cause
from wormholectl.show.printer import print_json, print_table, print_text, print_warnings

__all__ = ["show_checks", "show_sinks"]

_TITLES = ("SINK", "KIND", "GUARANTEE", "APPLICATION", "FLOWS", "LAG", "STORE")


def show_checks(found: Sequence[ExaminedSink], as_json: bool) -> None:
    """A report of each sink, below its name."""
    if as_json:
        print_json({"sinks": [{"sink": one.sink.name, **one.report.as_dict()} for one in found]})
        return
    for one in found:
        print_text(f"sink {one.sink.name}: {_about(one.sink)}")
        show_report(one.report, as_json=False)


def show_sinks(found: Sequence[ExaminedSink], flows: Sequence[Sequence[SinkFlow]], silent: str, as_json: bool) -> None:
    """One line for each sink. ``flows``: the flows of each sink; ``silent``: why some flows may not be known."""
    if as_json:
        objects = [_object(one, its) for one, its in zip(found, flows, strict=True)]
        print_json({"sinks": objects, "flows_unknown": silent or None})
        return
    causes: dict[str, str] = {}
    rows = [_row(one, its, causes) for one, its in zip(found, flows, strict=True)]
    print_table(_TITLES, rows, "no sinks", spare=("GUARANTEE", "APPLICATION"))
    for cause, sign in causes.items():
        print_text(f"{sign} {cause}")
    print_warnings([silent] if silent else [])


def _about(sink: ConfiguredSink) -> str:
    return f"{sink.kind.title}, {sink.kind.guarantee.value}, application {sink.application}"


def _row(one: ExaminedSink, flows: Sequence[SinkFlow], causes: dict[str, str]) -> tuple[str, ...]:
    states = Counter(flow.state for _, flow in flows)
    lags = [lag_of(status, flow) for status, flow in flows]
    store = "; ".join(finding.what for finding in one.report.findings if _is_shown(finding))
    return (
        one.sink.name,
        one.sink.kind.title,
        one.sink.kind.guarantee.value,
        one.sink.application,
        ", ".join(f"{number} {state}" for state, number in sorted(states.items())) or "-",
        lag_text(max(lags, key=lambda lag: lag.order)) if lags else "-",
        short_cause(store or "ok", causes),
    )


def _is_shown(finding: Finding) -> bool:
    return finding.severity is Severity.PROBLEM or finding.check == "unverified"


def _object(one: ExaminedSink, flows: Sequence[SinkFlow]) -> dict[str, Any]:
    return {
        "sink": one.sink.name,
        "kind": one.sink.kind.title,
        "guarantee": one.sink.kind.guarantee.value,
        "application": one.sink.application,
        "store": one.report.as_dict(),
        "flows": [flow_object(status, flow) for status, flow in flows],
    }
