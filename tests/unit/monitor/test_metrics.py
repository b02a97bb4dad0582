"""One answer for a whole host: joined by family, without who is silent, slow, someone else or talks nonsense."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from monitor import metrics as module
from monitor import publisher_client as asking
from monitor.metrics import HostMetrics, _families_of, add_routes, merge, parse, samples
from monitor.state import HostState, LogKey, Phase, PublisherState, SinkKey, SinkState
from tests.support.certificates import Authority
from tests.support.otel import read, reader
from wormhole.host.http_server import serve, url
from wormhole.host.trust import Trust
from wormhole.metrics import METRICS, Exporter, Sample
from wormhole.metrics import catalogue as c
from wormhole.metrics.process import ProcessFigures
from wormhole.metrics.text import render

ONE, TWO = LogKey("shop", "main", "db1"), LogKey("shop", "main", "db2")


def told(key: LogKey, updates: int = 0) -> str:
    log = (key.dataset, key.copy, key.log)
    return render([Sample(c.PUBLISHER_READY, 1, log), Sample(c.READER_UPDATES, updates, log)]).decode()


@asynccontextmanager
async def publisher(state: HostState, key: LogKey, answer: Callable[[], Awaitable[str]]) -> AsyncIterator[None]:
    """A publisher of ``state`` whose /metrics says what ``answer`` returns."""

    async def metrics(request: web.Request) -> web.Response:
        return web.Response(text=await answer())

    app = web.Application()
    app.add_routes([web.get("/metrics", metrics)])
    server = await serve(app, "127.0.0.1:0")
    state.publishers[key] = PublisherState(key, Phase.RUNNING, pid=1, http=server.address)
    try:
        yield
    finally:
        await server.close()


def says(text: str) -> Callable[[], Awaitable[str]]:
    async def answer() -> str:
        return text

    return answer


async def asked(state: HostState) -> dict[tuple[str, str], float]:
    exposition = HostMetrics(state)
    try:
        text = (await exposition.text()).decode()
    finally:
        await exposition.close()
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(set(names)) == len(names), "a family stands in one place only"
    return {
        (sample.name, sample.labels.get("log", "")): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


@pytest.fixture
def state() -> HostState:
    return HostState("h1")


async def test_publishers_are_joined_by_family(state: HostState) -> None:
    async with publisher(state, ONE, says(told(ONE, 3))), publisher(state, TWO, says(told(TWO, 4))):
        values = await asked(state)
    assert values["wormhole_reader_updates_total", "db1"] == 3
    assert values["wormhole_reader_updates_total", "db2"] == 4
    assert values["wormhole_monitor_publisher_up", "db1"] == values["wormhole_monitor_publisher_up", "db2"] == 1


async def test_an_answer_of_many_pieces_is_taken_whole(state: HostState) -> None:
    log = ("shop", "main", "db1")
    flows = [Sample(c.FLOW_LAG, 1.0, (*log, "app", f"shard-{number}")) for number in range(20_000)]
    text = told(ONE, 3) + render(flows).decode()
    async with publisher(state, ONE, says(text)):
        exposition = HostMetrics(state)
        try:
            answer = (await exposition.text()).decode()
        finally:
            await exposition.close()
    assert answer.count("wormhole_flow_lag_seconds{") == 20_000


async def test_who_does_not_answer_in_time_is_left_out_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_ANSWER_S", 0.3)
    state = HostState("h1")
    never = asyncio.Event()

    async def hangs() -> str:
        await never.wait()
        return told(ONE)

    async with publisher(state, ONE, hangs), publisher(state, TWO, says(told(TWO, 4))):
        values = await asked(state)
        never.set()
    assert ("wormhole_reader_updates_total", "db1") not in values
    assert values["wormhole_reader_updates_total", "db2"] == 4
    assert values["wormhole_monitor_publisher_up", "db1"] == 0


@pytest.mark.parametrize(
    "text",
    [
        "<html>something else</html>",
        told(TWO),  # another publisher took the port
        told(ONE) + told(TWO).splitlines()[2] + "\n",
        told(ONE) + "wormhole_forged 1\n",
        told(ONE) + "# TYPE up gauge\nup 1\n",
        "",
    ],
)
async def test_what_is_no_answer_of_this_publisher_is_left_out(text: str, state: HostState) -> None:
    async with publisher(state, ONE, says(text)):
        values = await asked(state)
    assert values["wormhole_monitor_publisher_up", "db1"] == 0
    assert not any(name.startswith(("wormhole_reader", "wormhole_forged", "up")) for name, _ in values)


async def test_who_is_gone_or_sends_without_end_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_MOST_BYTES", 100)
    state = HostState("h1")
    state.publishers[TWO] = PublisherState(TWO, Phase.RUNNING, pid=1, http="127.0.0.1:1")
    async with publisher(state, ONE, says(told(ONE))):
        values = await asked(state)
    assert values["wormhole_monitor_publisher_up", "db1"] == values["wormhole_monitor_publisher_up", "db2"] == 0


def test_of_two_releases_the_first_description_is_kept_and_no_type_is_mixed() -> None:
    old = '# HELP wormhole_x Xs.\n# TYPE wormhole_x gauge\nwormhole_x{log="a"} 1\n'
    reworded = old.replace("Xs.", "All Xs.").replace('"a"', '"b"')
    retyped = old.replace("gauge", "counter").replace('"a"', '"c"')
    text = merge(map(parse, (old, reworded, retyped)))
    assert text == old + 'wormhole_x{log="b"} 1\n'


def test_every_metric_of_a_monitor_is_reported() -> None:
    state = HostState("h1", coordination="connected")
    state.publishers[ONE] = PublisherState(ONE, Phase.RUNNING, restarts=2)
    state.sinks[SinkKey("lines")] = SinkState(SinkKey("lines"), Phase.RUNNING)
    found = list(samples(state, [ONE], ProcessFigures(1, 1.0, 1), state.started))
    of_tls = {c.MONITOR_CERTIFICATE_ENDS, c.MONITOR_CERTIFICATE_RELOADS}
    assert {sample.metric for sample in found} == {m for m in METRICS if m.exporter is Exporter.MONITOR} - of_tls
    assert all(len(sample.labels) == len(sample.metric.labels) for sample in found)
    assert Sample(c.MONITOR_RESTARTS, 2, ("h1", "shop", "main", "db1")) in found
    assert Sample(c.MONITOR_PUBLISHERS, 1, ("h1", "running")) in found


def test_the_metrics_of_another_sink_are_no_answer() -> None:
    own = render([Sample(c.SINK_INFO, 1, ("lines", "one", "JSON lines", "at least once"))])
    assert set(_families_of(SinkKey("lines"), bytearray(own))) == {c.SINK_INFO.name}
    with pytest.raises(ValueError, match="another sink"):
        _families_of(SinkKey("line"), bytearray(own))


async def test_the_routes_tell_health_with_reasons(state: HostState) -> None:
    app = web.Application()
    add_routes(app, state)
    server = await serve(app, "127.0.0.1:0")
    try:
        async with aiohttp.ClientSession() as session:

            async def ask(path: str) -> tuple[int, str]:
                async with session.get(url(server.address, None, path)) as answer:
                    return answer.status, await answer.text()

            assert await ask("/healthz") == (200, "ok\n")
            assert await ask("/readyz") == (503, "no configuration was read yet\n")
            state.configuration = "shop.toml"
            assert await ask("/readyz") == (200, "ready\n")
            status, text = await ask("/metrics")
            assert status == 200
            assert 'wormhole_monitor_ready{host="h1"} 1.0' in text
    finally:
        await server.close()


async def test_opentelemetry_gets_the_monitors_own_metrics(monkeypatch: pytest.MonkeyPatch, state: HostState) -> None:
    state.publishers[ONE] = PublisherState(ONE, Phase.GIVEN_UP)
    app = web.Application()
    add_routes(app, state)
    with reader(monkeypatch) as sdk:
        server = await serve(app, "127.0.0.1:0")
        values = await asyncio.to_thread(read, sdk)
        await server.close()
        assert await asyncio.to_thread(read, sdk) == {}
    assert values[c.MONITOR_READY.name, "h1"] == 0
    assert values[c.MONITOR_GAVE_UP.name, "h1", ONE.dataset, ONE.copy, ONE.log] == 1
    assert not any(name == c.MONITOR_UP.name for name, *_ in values)


async def test_a_monitor_with_tls_tells_when_its_certificates_end(tmp_path: Path) -> None:
    trust = await asyncio.to_thread(lambda: Trust(Authority(tmp_path).issue("h1")))
    exposition = HostMetrics(HostState("h1"), trust)
    told = (await exposition.text()).decode()
    await exposition.close()
    ends = trust.held.own.not_after.timestamp()
    assert f'wormhole_monitor_certificate_end_time_seconds{{host="h1",file="cert"}} {ends}' in told
    assert 'wormhole_monitor_certificate_reloads_total{host="h1",outcome="refused"} 0.0' in told
