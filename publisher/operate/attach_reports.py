"""Adds the listener for subscribers that dial this publisher to its status and metrics."""

from __future__ import annotations

from collections.abc import Iterator

from publisher.flows.part_reports import Row, warn
from publisher.push.attach_service import AttachListener
from wormhole.metrics import catalogue as c
from wormhole.wire.problems import problem_to_message
from wormhole.wire.v1 import admin_pb2

__all__ = ["AttachReports"]


class AttachReports:
    """Describes ``listener`` once an application has subscribers that dial."""

    def __init__(self, listener: AttachListener) -> None:
        self._listener = listener

    def describe(self, message: admin_pb2.PublisherStatus) -> None:
        """See :class:`~publisher.flows.part_reports.Described`."""
        listener = self._listener
        attached = listener.service.attached
        if not attached.wanted.is_set():
            return
        status = admin_pb2.AttachStatus(
            address=listener.address,
            problem=problem_to_message(listener.problem),
            attached=attached.connected,
            unfinished=attached.unfinished,
        )
        for code, attempts in sorted(listener.service.refused.items()):
            status.refused.add(code=code, attempts=attempts)
        if listener.problem:
            warn(message, listener.problem)
        message.attach.CopyFrom(status)

    def samples(self) -> Iterator[Row]:
        """See :class:`~publisher.flows.part_reports.Measured`."""
        service = self._listener.service
        if not service.attached.wanted.is_set():
            return
        yield c.ATTACH_LISTENS, bool(self._listener.address)
        yield c.ATTACH_CONNECTED, service.attached.connected
        yield c.ATTACH_UNFINISHED, service.attached.unfinished
        for code, attempts in service.refused.items():
            yield c.ATTACH_REFUSED, attempts, code
