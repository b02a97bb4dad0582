"""What every request of an operator has in common."""

from __future__ import annotations

import grpc
import pytest

from publisher.flows.refused_error import RefusedError
from publisher.operate.operators import Operators, flow_key, not_now, person
from publisher.publisher import Publisher
from tests.integration.publisher.conftest import World
from tests.integration.publisher.receiving import KEY
from tests.support.eventually import eventually
from wormhole.model.errors import CoordinationLost


@pytest.mark.parametrize("text", ["", "app", "/shard", "app/"])
def test_a_flow_is_named_by_application_and_shard(text: str) -> None:
    assert flow_key("app/log.t/x") == ("app", "log.t/x")
    with pytest.raises(RefusedError, match="is no name of a flow") as caught:
        flow_key(text)
    assert caught.value.status is grpc.StatusCode.INVALID_ARGUMENT


def test_who_it_was_is_kept_short_and_with_the_certificate() -> None:
    assert person("maria@ops\n", "") == "maria@ops"
    assert person("", "ops.example") == "an operator (certificate ops.example)"
    assert len(person("x" * 1000, "")) == 100


@pytest.mark.usefixtures("first")
async def test_what_is_done_is_kept_or_the_operator_is_informed(
    world: World, monkeypatch: pytest.MonkeyPatch, publisher: Publisher
) -> None:
    await eventually(lambda: KEY in publisher.assigner.flows, "registered")
    flows, coordinator = publisher.assigner.flows, publisher.coordinator
    operators = Operators(publisher.applications, publisher.ownership, flows, coordinator, publisher.clock)
    operators.check_serving()
    assert "did you mean app/log.t?" in str(operators.no_flow(("app", "log.u")))
    flow = publisher.assigner.flows[KEY]
    assert not_now(flow, "it is not").status is grpc.StatusCode.FAILED_PRECONDITION
    assert await operators.record("maria", "pause", "app/log.t", "live", "paused") == []
    assert [(one.who, one.what, one.target) for one in world.coordination.history] == [("maria", "pause", "app/log.t")]

    async def lost(entry: object) -> None:
        raise CoordinationLost("no contact")

    monkeypatch.setattr(publisher.coordinator, "record", lost)
    assert "the history misses it" in (await operators.record("maria", "pause", "app/log.t", "", ""))[0]
    publisher.applications.known.clear()
    with pytest.raises(RefusedError) as caught:
        operators.check_serving()
    assert caught.value.status is grpc.StatusCode.UNAVAILABLE
