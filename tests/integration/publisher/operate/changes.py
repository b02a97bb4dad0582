"""The changes of an operator."""

from __future__ import annotations

from typing import Any

import pytest

from publisher.flows.refused_error import RefusedError
from publisher.operate.control import Control
from publisher.publisher import Publisher
from publisher.wiring import operated
from tests.integration.publisher.conftest import World
from tests.integration.publisher.receiving import KEY
from tests.support.eventually import eventually
from tests.support.scripted_subscriber import ScriptedSubscriber
from wormhole.wire.v1 import admin_pb2, push_pb2

FLOW = "app/log.t"


def request(what: str, flow: str = FLOW, *, preview: bool = False, **fields: Any) -> admin_pb2.ChangeRequest:
    asked = admin_pb2.ChangeRequest(who="maria@ops", flow=flow, preview=preview)
    getattr(asked, what).SetInParent()
    for name, value in fields.items():
        setattr(getattr(asked, what), name, value)
    return asked


async def served(publisher: Publisher) -> Control:
    """The publisher knows its flow."""
    await eventually(lambda: KEY in publisher.assigner.flows, "registered")
    return operated(publisher).control


async def refused(control: Control, asked: admin_pb2.ChangeRequest) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        await control.change(asked)
    return caught.value


def history(world: World) -> list[tuple[str, str, str]]:
    return [(entry.who, entry.what, entry.target) for entry in world.coordination.history]


async def finished(subscriber: ScriptedSubscriber, assign: push_pb2.Assign) -> None:
    """It is asked for the flow, and gives it back."""
    await subscriber.hears_later("revoke")
    await subscriber.releases(assign)
