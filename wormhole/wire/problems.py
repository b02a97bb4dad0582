"""Problems in a publisher's answers: as a message, and as text for clients of an earlier release."""

from __future__ import annotations

from wormhole.model.problem import Problem
from wormhole.wire.v1 import admin_pb2

__all__ = ["is_unowned", "problem_of", "problem_to_message", "standby_of", "warnings_of"]


def problem_to_message(problem: Problem) -> admin_pb2.Problem | None:
    """The message; none when nothing is wrong."""
    return admin_pb2.Problem(text=problem.text, hint=problem.hint) if problem else None


def problem_of(status: admin_pb2.FlowStatus | admin_pb2.SubscriberStatus | admin_pb2.ReplayReply) -> Problem:
    """Why it waits. A publisher of an earlier release sends one text, which may end with the next step."""
    if status.HasField("problem"):
        return Problem(status.problem.text, status.problem.hint)
    return Problem(status.cause)


def standby_of(status: admin_pb2.PublisherStatus) -> Problem:
    """Why the publisher does not own its log; empty: it does, or nobody else could."""
    return Problem(status.standby.text, status.standby.hint)


def is_unowned(status: admin_pb2.PublisherStatus) -> bool:
    """Whether the publisher stands by for a log that nobody owns. Without coordination it cannot know."""
    return status.HasField("standby") and not status.owner and status.coordination == "connected"


def warnings_of(status: admin_pb2.PublisherStatus) -> list[Problem]:
    """What is wrong with the publisher's log. Of an earlier release as :func:`problem_of`."""
    return [Problem(one.text, one.hint) for one in status.warnings] or [Problem(text) for text in status.problems]
