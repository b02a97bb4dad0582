"""Decides from the reports of an application's publishers whether the application is late. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from wormhole.admin.admin_service import Answer, check_application, publisher_name
from wormhole.wire.conditions import Condition, State, flow_condition, log_condition
from wormhole.wire.lag import Lag, lag_of
from wormholectl.exit_codes import BROKEN, UNREACHABLE
from wormholectl.show.flows import lag_text
from wormholectl.show.printer import counted, span

__all__ = ["FlowLag", "LagVerdict", "judge"]


@dataclass(frozen=True, slots=True)
class FlowLag:
    """A flow's name, state, lag and problem, as ``wormholectl flows`` shows them."""

    flow: str
    state: str
    lag: Lag
    condition: Condition

    def __str__(self) -> str:
        return f"{self.flow} ({self.state}) is {lag_text(self.lag)} behind"


@dataclass(frozen=True, slots=True)
class LagVerdict:
    """The verdict on an application. ``flows``: its flows, the flow furthest behind first. ``silent``: why publishers
    did not answer, or do not know the end of their log or the age of a backlog. Then the lag is a lower bound.
    """

    application: str
    most_s: float
    flows: tuple[FlowLag, ...]
    silent: tuple[str, ...] = ()

    @property
    def late(self) -> int:
        """The number of flows whose lag exceeds the limit."""
        return sum(1 for one in self.flows if (one.lag.seconds or 0.0) > self.most_s)

    @property
    def exit_code(self) -> int:
        """The exit code of the command. A flow that is known to be late counts more than an unknown lag."""
        return BROKEN if self.late else UNREACHABLE if self.silent else 0

    def line(self) -> str:
        """The verdict as one line of text."""
        limit = f"limit {span(self.most_s)}"
        unknown = f"; {'; '.join(self.silent)}" if self.silent else ""
        if not self.flows:
            return f"UNREACHABLE {self.application}: {'; '.join(self.silent)}"
        last, number = self.flows[0], counted(len(self.flows), "flow")
        if self.late:
            many = f"{self.late} of {len(self.flows)} flows late, " if len(self.flows) > 1 else ""
            cause = str(last.condition)
            cause = f": {cause}" if cause and cause not in unknown else ""
            return f"LATE {self.application}: {many}{last} ({limit}){cause}{unknown}"
        if self.silent:
            bound = replace(last.lag, unknown=unknown)
            return f"UNREACHABLE {self.application}: {number}, {lag_text(bound)} behind ({limit}){unknown}"
        return f"OK {self.application}: {number}, at most {lag_text(last.lag)} behind ({limit})"


def judge(application: str, most_s: float, answers: Sequence[Answer]) -> LagVerdict:
    """The verdict on an application from the answers of publishers. ``most_s``: the permitted lag in seconds.

    Raises :class:`~wormhole.model.errors.UsageError` if every publisher answers and none has a flow of the application.
    """
    check_application(answers, application)
    flows = [
        FlowLag(flow.flow, flow.state, lag_of(answer.status, flow), flow_condition(answer.status, flow))
        for answer in answers
        if answer.status is not None
        for flow in answer.status.flows
        if flow.flow.partition("/")[0] == application
    ]
    ageless = (f"{one}: {one.lag.unknown}" for one in flows if one.lag.seconds is None)
    flows.sort(key=lambda one: one.lag.order, reverse=True)
    unknown = (_unknown(one) for one in answers if one.status is not None or one.may_have(application))
    return LagVerdict(application, most_s, tuple(flows), (*filter(None, unknown), *ageless))


def _unknown(answer: Answer) -> str:
    """Why a publisher does not know the lag of its flows; empty if it does."""
    if answer.status is None:
        return answer.problem
    condition = log_condition(answer.status)
    return f"{publisher_name(answer.status)}: {condition}" if condition.state is State.LOG_UNREADABLE else ""
