"""Converts the problems in a publisher's answers to messages and back, also those of an earlier release."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from wormhole.model.problem import Problem
from wormhole.wire.v1 import admin_pb2, push_pb2

__all__ = [
    "code_of_goodbye",
    "is_unowned",
    "problem_from",
    "problem_of",
    "problem_to_message",
    "standby_of",
    "warnings_of",
]

_GOODBYE_CODES: Final[Mapping[int, str]] = {
    push_pb2.Goodbye.LEAVING: "in-progress",
    push_pb2.Goodbye.VERSION: "protocol-broken",
    push_pb2.Goodbye.WRONG_ADDRESS: "address-taken",
    push_pb2.Goodbye.PROTOCOL: "protocol-broken",
    push_pb2.Goodbye.NOT_ALLOWED: "certificate-refused",
}


def problem_to_message(problem: Problem) -> admin_pb2.Problem | None:
    """The message; ``None`` if there is no problem."""
    return admin_pb2.Problem(text=problem.text, hint=problem.hint, code=problem.code) if problem else None


def problem_from(message: admin_pb2.Problem) -> Problem:
    """The problem in the message. A message of an earlier release has no code."""
    return Problem(message.text, message.hint, message.code)


def problem_of(status: admin_pb2.FlowStatus | admin_pb2.SubscriberStatus | admin_pb2.ReplayReply) -> Problem:
    """Why the flow, subscriber or replay waits. An earlier release sends one text, which may end with the next step."""
    if status.HasField("problem"):
        return problem_from(status.problem)
    return Problem(status.cause)


def standby_of(status: admin_pb2.PublisherStatus) -> Problem:
    """The reason why the publisher does not own its log; empty: it owns the log, or no other publisher could."""
    return problem_from(status.standby)


def code_of_goodbye(reason: int) -> str:
    """The code for a stream that the other side ended with this reason."""
    return _GOODBYE_CODES.get(reason, "stream-broken")


def is_unowned(status: admin_pb2.PublisherStatus) -> bool:
    """Whether the publisher stands by for a log without an owner. False without coordination."""
    return status.HasField("standby") and not status.owner and status.coordination == "connected"


def warnings_of(status: admin_pb2.PublisherStatus) -> list[Problem]:
    """The problems of the publisher's log. An earlier release reports them as in :func:`problem_of`."""
    return [problem_from(one) for one in status.warnings] or [Problem(text) for text in status.problems]
