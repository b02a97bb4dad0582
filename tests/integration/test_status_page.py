"""The status page as a person sees it, in a real browser: on a phone and on a desk, in both schemes."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from monitor.state import HostEvent, HostState, LogKey, Phase, PublisherState, SinkKey, SinkState
from monitor.web import add_routes
from tests.support.browser import Page, find_browser, open_page, start_browser
from tests.support.eventually import eventually
from tests.support.monitor_states import add_flow, backfill, busy, crowded, quiet
from tests.support.ports import free_port
from tests.support.publisher_status import relay
from wormhole.host.http_guard import protect
from wormhole.wire.v1 import admin_pb2

PHONE, DESK = (390, 844), (1280, 800)
_DRAWN = "document.querySelectorAll('#flows-rows tr').length > 0"

# Every piece of visible text: its contrast with what lies below it. Grounds are opaque or transparent, so the nearest
# opaque one counts; a text whose ground cannot be told fails.
_CONTRAST = """
(() => {
  const channel = (value) => { value /= 255; return value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4; };
  const parse = (text) => { const found = text.match(/[\\d.]+/g).map(Number); return { rgb: found.slice(0, 3), alpha: found[3] ?? 1 }; };
  const light = ({ rgb }) => 0.2126 * channel(rgb[0]) + 0.7152 * channel(rgb[1]) + 0.0722 * channel(rgb[2]);
  const ground = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour.alpha === 1) return colour;
      if (colour.alpha > 0) return null;
    }
    return null;
  };
  const faults = [];
  let looked = 0;
  const look = (node, pseudo, text) => {
    const style = getComputedStyle(node, pseudo);
    const box = node.getBoundingClientRect();
    if (!box.width || !box.height || style.visibility !== 'visible' || node.closest('.unseen, .skip')) return;
    looked += 1;
    const below = ground(node), colour = parse(style.color);
    let opacity = 1;
    for (let at = node; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    if (!below || colour.alpha !== 1 || opacity !== 1) return faults.push(`${text}: cannot be told`);
    const [high, low] = [light(below), light(colour)].sort((one, other) => other - one);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < 4.5) faults.push(`${contrast.toFixed(2)} ${node.className} ${text}`);
  };
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.textContent.trim();
    if (text) look(walker.currentNode.parentElement, null, text);
  }
  for (const node of document.querySelectorAll('td[data-label]')) look(node, '::before', node.dataset.label);
  for (const node of document.querySelectorAll('input')) look(node, '::placeholder', node.placeholder);
  for (const node of document.querySelectorAll('select, button')) look(node, null, node.tagName);
  return { looked, faults };
})()
"""  # noqa: E501

# What reaches beyond the screen, or is cut off without a way to see it.
_OVERFLOW = """
(() => {
  const width = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll('body *')].filter((node) => {
    const box = node.getBoundingClientRect();
    return box.width && !node.closest('.unseen, .skip, thead') && (box.right > width + 0.5 || box.left < -0.5);
  });
  return { page: document.documentElement.scrollWidth - width, out: out.slice(0, 5).map((node) => `${node.className} ${node.textContent.slice(0, 60)}`) };
})()
"""  # noqa: E501

_GREEN = """
(() => {
  const probe = document.body.appendChild(document.createElement('i'));
  probe.style.background = 'var(--good)';
  const good = getComputedStyle(probe).backgroundColor;
  probe.remove();
  const nodes = [...document.querySelectorAll('.verdict, .flows .state')];
  return nodes.some((node) => getComputedStyle(node, '::before').backgroundColor === good);
})()
"""

_CHIPS = """
[...document.querySelectorAll('.log:last-child .chip')].map((chip) => {
  const box = chip.getBoundingClientRect();
  return [box.left, box.top, box.right, box.bottom];
})
"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    program = find_browser()
    if program is None:
        pytest.skip("chromium is not installed (Debian's package chromium); `make prepare-dev` says how")
    with start_browser(program, tmp_path_factory.mktemp("browser")) as address:
        yield address


@asynccontextmanager
async def serving(state: HostState, port: int = 0) -> AsyncIterator[str]:
    app = web.Application()
    protect(app)
    add_routes(app, state)
    runner = web.AppRunner(app, shutdown_timeout=1.0)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/"
    finally:
        await runner.cleanup()


@asynccontextmanager
async def showing(
    browser: str, state: HostState, size: tuple[int, int] = DESK, scheme: str = "light", drawn: str = _DRAWN
) -> AsyncIterator[Page]:
    async with serving(state) as address, open_page(browser) as page:
        await page.look(*size, scheme)
        await page.go(address)
        await page.until(drawn)
        yield page
        assert page.complaints == []
        assert [request for request in page.requests if not request.startswith(address)] == []
        assert any(request == f"{address}api/events" for request in page.requests), "else nothing was recorded"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [PHONE, DESK], ids=["phone", "desk"])
async def test_everything_fits_and_can_be_read(browser: str, size: tuple[int, int], scheme: str) -> None:
    async with showing(browser, busy(time.time()), size, scheme) as page:
        fits = await page.evaluate(_OVERFLOW)
        assert fits == {"page": 0, "out": []}
        read = await page.evaluate(_CONTRAST)
        assert read["faults"] == []
        assert read["looked"] > 200
        dark = await page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/)[0] < 100")
        assert dark == (scheme == "dark")
        seen = await page.evaluate("document.body.innerText")
        for told in (
            "db1.internal",
            "2 problems",
            "given up",
            "fraud/2",
            "KeyError: 'currency'",
            "crash loop",
            "5.0 GiB behind",
        ):
            assert told in seen.replace("\u00a0", " "), told


async def test_sinks_are_shown_where_there_are_some(browser: str) -> None:
    state = busy(time.time())
    async with showing(browser, state) as page:
        assert "Sinks" not in await page.evaluate("document.body.innerText")
        failing, going = SinkKey("search"), SinkKey("warehouse-of-a-rather-long-name")
        state.sinks[failing] = SinkState(failing, Phase.BACKING_OFF, problem="the folder is gone", restarts=3)
        url = f"jsonlines:///srv/{'a-long-folder/' * 12}"
        state.sinks[going] = SinkState(going, Phase.RUNNING, 4711, url=url, application="warehouse", unverified=2)
        state.changed()
        await page.until("document.querySelectorAll('#sinks-list .log').length === 2")
        told = await page.evaluate("document.getElementById('sinks').innerText")
        for text in ("the folder is gone", "4711", "warehouse", "jsonlines:///srv/a-long-folder/", "2 tables"):
            assert text in told.replace("\u00a0", " ")
        concerns = await page.evaluate("document.getElementById('concerns-list').innerText")
        assert "search" in concerns
        assert "wormholectl backfill start warehouse" in concerns
        for width in (320, 640, 1057):
            await page.look(width, 800)
            assert await page.evaluate(_OVERFLOW) == {"page": 0, "out": []}, width
            assert (await page.evaluate(_CONTRAST))["faults"] == []


async def test_at_every_width_between_nothing_is_cut_off(browser: str) -> None:
    async with showing(browser, busy(time.time())) as page:
        for width in (320, 480, 640, 768, 1024, 1056, 1057, 1100, 1920):
            await page.look(width, 800)
            assert await page.evaluate(_OVERFLOW) == {"page": 0, "out": []}, width


async def test_one_sees_who_is_where(browser: str) -> None:
    state = busy(time.time())
    shop = state.publishers[LogKey("shop", "main", "db1")].status
    assert shop is not None
    # One at the line's beginning, whose label has to reach to the right.
    add_flow(state.publishers[LogKey("shop", "main", "db1")], "archive/0", 60 << 30, caravan=3)
    shop.caravans[2].place.CopyFrom(shop.flows[-1].place)
    shop.flows[-1].reads_relay = True
    shop.relay.CopyFrom(relay(readers=1))
    async with showing(browser, state) as page:
        held = await page.evaluate("""
            [...document.querySelectorAll('.log .facts dt')].filter((name) => name.textContent === 'Relay')
                .map((name) => name.nextElementSibling.textContent)""")
        assert len(held) == 1
        assert re.fullmatch(r"3\.0\sGiB of 8\.0\sGiB, \d+\sd of log, read by 1", held[0]), held
        assert await page.evaluate("document.body.textContent.includes('3 (relay)')")
        dots = await page.evaluate("""
            [...document.querySelectorAll('.log:last-child .dot')].map((dot) => dot.getBoundingClientRect().left)""")
        assert dots == sorted(dots, reverse=True)
        assert len(dots) == 3
        boxes = await page.evaluate(_CHIPS)
        await page.look(*PHONE)
        narrow = await page.evaluate(_CHIPS)
        for found in (boxes, narrow):
            for i, one in enumerate(found):
                for other in found[i + 1 :]:
                    apart = one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]
                    assert apart, "two caravans' labels lie on each other"


async def test_one_that_stands_by_is_no_problem_and_names_the_owner(browser: str) -> None:
    state = busy(time.time())
    shop = state.publishers[LogKey("shop", "main", "db1")].status
    assert shop is not None
    why = admin_pb2.Problem(text="stands by: main@alpha (process 7) owns the log, in term 3")
    shop.CopyFrom(admin_pb2.PublisherStatus(coordination="connected", owner="main@alpha", standby=why))
    async with showing(browser, state) as page:
        log = "[...document.querySelectorAll('.log')].find((one) => one.textContent.startsWith('shop/main/db1'))"
        assert await page.evaluate(f"{log}.dataset.level") == "none"
        assert await page.evaluate(f"{log}.querySelector('.phase').textContent") == "stands by"
        facts = await page.evaluate(f"[...{log}.querySelectorAll('.facts dt')].map((one) => one.textContent)")
        assert facts == ["Process", "Restarts", "Owner"]


async def test_a_change_shows_at_once_and_disturbs_nobody(browser: str) -> None:
    state = busy(time.time())
    async with showing(browser, state) as page:
        await page.evaluate(
            "document.getElementById('filter').focus(); document.getElementById('filter').value = 'mail'; 0"
        )
        await page.evaluate("document.getElementById('filter').dispatchEvent(new Event('input'))")
        await page.until("document.querySelectorAll('#flows-rows tr').length === 2")
        await page.evaluate("""
            window.row = document.querySelector('#flows-rows tr'); window.scrollTo(0, 300); window.written = 0;
            new MutationObserver((all) => { for (const one of all) written += one.addedNodes.length + one.removedNodes.length; })
              .observe(document.getElementById('flows-rows'), { childList: true }); 0""")  # noqa: E501
        shop = state.publishers[LogKey("shop", "main", "db1")].status
        assert shop is not None
        for flow in shop.flows:
            if flow.flow == "mail/0":
                flow.state, flow.credit, flow.credit_waited_s = "live", 4 << 20, 0
        shop.caravans[1].bytes_per_s = 99 << 20
        state.report("merge", "caravan 2 ends", "shop/main/db1")
        await page.until("document.getElementById('events').innerText.includes('caravan 2 ends')")
        assert await page.evaluate("window.row.isConnected && /mail.0[^]*live/.test(window.row.innerText)"), (
            "the row was kept"
        )
        assert await page.evaluate("[window.written, document.activeElement.id, window.scrollY]") == [2, "filter", 300]
        assert await page.evaluate(
            "[...document.querySelectorAll('.chip')].some((chip) => chip.innerText.includes('99.0'))"
        )
        state.host = "db2.internal"
        state.changed()
        await page.until("document.title === '(2) db2.internal · Wormhole'")


async def test_a_backfill_shows_how_far_it_is_and_why_it_waits(browser: str) -> None:
    state = quiet(time.time())
    (shop,) = state.publishers.values()
    add_flow(shop, "ledger/0", 140_000, 0.3, backfill=backfill(0.25))
    assert shop.status is not None
    flow = shop.status.flows[-1]
    text = "document.querySelector('#flows-rows .backfill:not([hidden])')?.innerText ?? ''"
    async with showing(browser, state) as page:
        assert await page.evaluate(text) == "backfill running 25%, 1,000,000 rows sent"
        assert await page.evaluate("document.querySelectorAll('.backfill:not([hidden])').length") == 1
        gauge = "document.querySelector('.backfill:not([hidden]) .gauge i').style.width"
        assert await page.evaluate(gauge) == "25%"
        lag = "[...document.querySelectorAll('#flows-rows tr')].map((row) => row.children[3].innerText)"
        assert {await page.evaluate(f"{lag}[{i}].trim()") for i in range(3)} == {"0.2\u00a0s", "0.3\u00a0s"}
        assert await page.evaluate("document.getElementById('verdict').innerText") == "All is well"
        flow.backfill.waits.text = "its subscriber is of an earlier release"
        flow.backfill.ClearField("share")
        state.changed()
        await page.until(f"({text}).includes('earlier release')")
        assert await page.evaluate("document.querySelector('.backfill:not([hidden]) .gauge').hidden")
        flow.backfill.progress.add(
            table="shop.log", state="refused", refused={"text": "it has no key", "hint": "add one"}
        )
        state.changed()
        await page.until("document.getElementById('verdict').innerText === '1 to look at'")
        concern = "the existing rows of shop.log cannot be sent: it has no key"
        assert concern in await page.evaluate("document.getElementById('concerns').innerText")
        flow.backfill.state = "done"
        state.changed()
        await page.until(f"({text}) === 'backfill done without shop.log'")
        assert await page.evaluate("document.getElementById('verdict').innerText") == "All is well"


async def test_a_lost_monitor_is_said_until_it_is_back(browser: str, monkeypatch: pytest.MonkeyPatch) -> None:
    state, port = quiet(time.time()), free_port()
    async with open_page(browser) as page:
        async with serving(state, port) as address:
            await page.go(address)
            await page.until("document.getElementById('contact').innerText === 'live'")
            assert await page.evaluate("document.getElementById('lost').hidden")
        await page.until("!document.getElementById('lost').hidden")
        said = await page.evaluate("document.getElementById('lost').innerText")
        assert "lost at" in said
        assert "trying again" in said
        assert await page.evaluate("document.getElementById('contact').innerText") == "not connected"
        assert "not known" in await page.evaluate("document.getElementById('verdict').innerText"), "all was well then"
        assert "search/0" in await page.evaluate("document.getElementById('flows-rows').innerText"), (
            "what was known stays"
        )
        read = await page.evaluate(_CONTRAST)
        assert read["faults"] == []
        async with serving(state, port):
            await page.until("document.getElementById('lost').hidden")
            await page.until("document.getElementById('contact').innerText === 'live'")
            assert await page.evaluate("document.getElementById('verdict').innerText") == "All is well"
            assert page.loads == 1
            monkeypatch.setattr("monitor.web.snapshot.__version__", "99.0")
            state.changed()
            await eventually(lambda: page.loads == 2, "a monitor of another version brings its own page")


async def test_names_are_text_whatever_they_look_like(browser: str) -> None:
    evil = "<img src=x onerror=document.body.remove()>"
    state = quiet(time.time(), host=f"{evil}host")
    (shop,) = state.publishers.values()
    add_flow(shop, f"{evil}/0", state="held", subscriber=f"{evil}sub", caravan=0, cause=f"{evil}cause `{evil}`")
    add_flow(shop, "<script>document.body.remove()</script>/1", paused=f"{evil}who")
    add_flow(shop, "w" * 500 + "/2")
    shop.problem = state.configuration = f"{evil}problem"
    state.report(f"{evil}kind", f"{evil}text", f"{evil}subject")
    for size in (DESK, PHONE):
        async with showing(browser, state, size) as page:
            assert await page.evaluate("document.querySelectorAll('img').length") == 1, "the page's own"
            assert await page.evaluate("document.querySelectorAll('script').length") == 1
            seen = await page.evaluate("document.body.innerText")
            for part in ("host", "sub", "cause", "problem", "kind", "subject", "text", "who"):
                assert f"{evil}{part}" in seen, part
            assert await page.evaluate(_OVERFLOW) == {"page": 0, "out": []}


async def test_the_browser_itself_refuses_markup_made_of_text(browser: str) -> None:
    """Should somebody write ``innerHTML`` one day: the policy makes it an error."""
    async with serving(quiet(time.time())) as address, open_page(browser) as page:
        await page.go(address)
        await page.until(_DRAWN)
        refused = (
            "(() => { try { document.body.innerHTML = '<b>x</b>'; return 'done'; } catch (error) { return "
            "error.name; } })()"
        )
        assert await page.evaluate(refused) == "TypeError"


async def test_hundreds_of_flows_are_drawn_as_they_are_asked_for(browser: str) -> None:
    async with showing(browser, crowded(time.time(), 600), PHONE) as page:
        rows = "document.querySelectorAll('#flows-rows tr').length"
        assert await page.evaluate(rows) == 100
        assert await page.evaluate("document.getElementById('flows-count').innerText") == "602"
        await page.evaluate("document.getElementById('flows-more').click()")
        assert await page.evaluate(rows) == 200
        await page.evaluate("""
            document.getElementById('filter').value = 'app3/59'; document.getElementById('filter').dispatchEvent(new Event('input'))""")  # noqa: E501
        assert await page.evaluate(rows) == 3
        assert await page.evaluate("document.getElementById('flows-count').innerText") == "3 of 602"
        await page.evaluate("""
            document.getElementById('filter').value = 'nobody'; document.getElementById('filter').dispatchEvent(new Event('input'))""")  # noqa: E501
        assert await page.evaluate("document.getElementById('flows-none').innerText") == "No flow fits the filter."


async def test_the_keyboard_and_a_reader_find_their_way(browser: str) -> None:
    async with showing(browser, busy(time.time()), PHONE) as page:
        nodes = (await page.call("Accessibility.getFullAXTree"))["nodes"]
        found = {(node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if "role" in node}
        assert {("searchbox", "Filter flows"), ("combobox", "Order"), ("status", "")} <= found
        roles = [role for role, _ in found]
        # As cards, too, flows are a table with its head.
        assert {"table", "row", "columnheader", "cell", "main", "banner", "alert"} - {"alert"} <= set(roles)
        assert ("heading", "Flows 20") in found
        assert ("list", "Caravans of shop/main/db1") in found
        order = []
        for _ in range(3):
            for kind in ("keyDown", "keyUp"):
                await page.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
            order.append(await page.evaluate("document.activeElement.id || document.activeElement.className"))
        assert order == ["skip", "filter", "order"]
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert await page.evaluate(outline) == "solid", "one sees where the focus is"
        moves = "getComputedStyle(document.querySelector('.chip')).transitionDuration"
        assert await page.evaluate(moves) == "0s", "whoever wants no motion gets none"


async def test_a_host_with_nothing_to_run_says_so(browser: str) -> None:
    drawn = "!document.getElementById('logs-none').hidden"
    state = HostState("db9", coordination="static")
    async with showing(browser, state, PHONE, "dark", drawn) as page:
        seen = await page.evaluate("document.body.innerText")
        assert "Nothing runs here" in seen
        assert not await page.evaluate(_GREEN)
        assert "This host serves no log" in seen
        assert (await page.evaluate(_CONTRAST))["faults"] == []
        state.publishers[LogKey("shop", "main", "db1")] = PublisherState(LogKey("shop", "main", "db1"), Phase.STARTING)
        state.changed()
        await page.until("document.getElementById('flows-none').innerText.includes('not answered yet')")
        assert await page.evaluate("document.getElementById('verdict').innerText") == "1 publisher not answered yet"
        assert not await page.evaluate(_GREEN), "before its first answer nothing is known of it"
        quiet_one = next(iter(quiet(time.time()).publishers.values()))
        assert quiet_one.status is not None
        served = list(quiet_one.status.flows)
        del quiet_one.status.flows[:]
        refused = admin_pb2.Problem(text="the server refuses the account", hint="correct password_file")
        quiet_one.status.unreadable.CopyFrom(refused)
        state.publishers = {quiet_one.key: quiet_one}
        state.changed()
        await page.until("document.getElementById('flows-none').innerText.includes('the server refuses the account')")
        assert "correct password_file" in await page.evaluate("document.body.innerText")
        quiet_one.status.ClearField("unreadable")
        quiet_one.status.flows.extend(served)
        state.changed()
        await page.until("document.getElementById('verdict').innerText === 'All is well'")
        assert await page.evaluate(_GREEN)


async def test_zookeeper_away_is_in_sight(browser: str) -> None:
    state = quiet(time.time())
    async with showing(browser, state) as page:
        assert await page.evaluate("document.getElementById('verdict').innerText") == "All is well"
        state.coordination = "lost"
        state.add(HostEvent(time.time() - 300, "coordination", "", "ZooKeeper does not answer"))
        state.changed()
        await page.until("document.getElementById('verdict').innerText === '1 to look at'")
        facts = await page.evaluate("document.getElementById('host-facts').innerText")
        assert "lost" in facts
        assert "5 min ago" in facts.replace("\u00a0", " ")
        announced = await page.evaluate("document.getElementById('announce').textContent")
        assert announced == "1 to look at"
