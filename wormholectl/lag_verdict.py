"""Whether an application is late: decided from what its publishers report. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from wormhole.wire.v1 import admin_pb2
from wormholectl.admin_client import Answer, check_application
from wormholectl.errors import BROKEN, UNREACHABLE
from wormholectl.show.lists import publisher_name
from wormholectl.show.printer import counted, size, span

__all__ = ["Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """``flows`` of the application as (name, seconds behind, state), the last first; ``silent``: why publishers did not
    answer, or do not know where their log ends or how old a flow's backlog is: then what is shown is a lower bound.
    """

    application: str
    most_s: float
    flows: tuple[tuple[str, float, str], ...]
    silent: tuple[str, ...] = ()

    @property
    def late(self) -> int:
        """How many flows are behind by more than is allowed."""
        return sum(1 for _, lag, _ in self.flows if lag > self.most_s)

    @property
    def exit_code(self) -> int:
        """What is known to be late counts before what is not known."""
        return BROKEN if self.late else UNREACHABLE if self.silent else 0

    def line(self) -> str:
        """All of it on one line."""
        limit = f"limit {span(self.most_s)}"
        unknown = f"; {'; '.join(self.silent)}" if self.silent else ""
        if not self.flows:
            return f"UNREACHABLE {self.application}: {'; '.join(self.silent)}"
        name, lag, state = self.flows[0]
        if self.late:
            many = f"{self.late} of {len(self.flows)} flows late, " if len(self.flows) > 1 else ""
            return f"LATE {self.application}: {many}{name} ({state}) is {span(lag)} behind ({limit}){unknown}"
        if self.silent:
            return (
                f"UNREACHABLE {self.application}: {counted(len(self.flows), 'flow')}, at least {span(lag)} behind "
                f"({limit}){unknown}"
            )
        return f"OK {self.application}: {counted(len(self.flows), 'flow')}, at most {span(lag)} behind ({limit})"


def judge(application: str, most_s: float, answers: Sequence[Answer]) -> Verdict:
    """What the answers say of an application.

    Raises :class:`~wormhole.model.errors.UsageError` when every publisher answers and none has a flow of it.
    """
    told = [flow for answer in answers if answer.status is not None for flow in answer.status.flows]
    mine = [flow for flow in told if flow.flow.partition("/")[0] == application]
    silent = (*filter(None, map(_unknown, answers)), *map(_without_age, filter(_is_ageless, mine)))
    check_application(answers, application)
    flows = sorted(((flow.flow, flow.lag_s, flow.state) for flow in mine), key=lambda flow: -flow[1])
    return Verdict(application, most_s, tuple(flows), silent)


def _is_ageless(flow: admin_pb2.FlowStatus) -> bool:
    """Whether log is left to deliver whose age is unknown: the datamarker has no commit time, and nothing was read
    after it.
    """
    return flow.lag_bytes > 0 and not flow.lag_s and not flow.HasField("lag_transactions")


def _without_age(flow: admin_pb2.FlowStatus) -> str:
    return f"{flow.flow} ({flow.state}) is {size(flow.lag_bytes)} of log of unknown age behind"


def _unknown(answer: Answer) -> str:
    """Why a publisher cannot say how late its flows are; empty where it can."""
    if answer.status is None:
        return answer.problem
    if not answer.status.end_unknown:
        return ""
    return f"{publisher_name(answer.status)} does not know the end of its log: {answer.status.end_unknown}"
