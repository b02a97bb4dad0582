"""A headless Chromium, driven over its DevTools protocol: what a person would see of a page, as far as a program can
look.

One process for many tests; each page has a context of its own (cookies, cache) and is closed with it. It reaches
loopback only.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp

from tests.support.eventually import PATIENCE_S, eventually, patience, until
from wormhole.host import process_guard

_OPTIONS: Final = (
    "--headless",
    "--remote-debugging-port=0",
    "--no-first-run",
    "--no-default-browser-check",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--disable-gpu",
    "--disable-sync",
    "--hide-scrollbars",
    "--lang=en-US",
    # No name but localhost resolves: what is fetched from elsewhere fails, and is seen in `requests`.
    "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE localhost , EXCLUDE 127.0.0.1",
)


def find_browser() -> str | None:
    """The program, or ``None``."""
    return shutil.which("chromium")


@contextlib.contextmanager
def start_browser(program: str, folder: Path) -> Iterator[str]:
    """Run the browser with its files in ``folder``; yields the address of its DevTools. It ends with its owner."""
    options = [*_OPTIONS, f"--user-data-dir={folder}", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    guard = [sys.executable, "-I", "-S", process_guard.__file__, str(os.getpid()), ""]
    with (folder / "browser.log").open("wb") as log:
        process = subprocess.Popen(
            [*guard, program, *options, "about:blank"],
            env={**os.environ, "TZ": "UTC", "HOME": str(folder)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
    try:
        yield _address(process, folder)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _address(process: subprocess.Popen[bytes], folder: Path) -> str:
    told = folder / "DevToolsActivePort"

    def output() -> str:
        return f"the browser did not start: {(folder / 'browser.log').read_text(errors='replace')[-2000:]}"

    def address() -> list[str]:
        assert process.poll() is None, output()
        lines = told.read_text().split() if told.exists() else []
        return lines if len(lines) == 2 else []

    port, path = until(address, output)
    return f"ws://127.0.0.1:{port}{path}"


@dataclass(slots=True)
class Page:
    """One page. ``requests``: every address that it asked for; ``complaints``: errors and warnings of its console;
    ``loads``: how often a document was loaded."""

    _socket: aiohttp.ClientWebSocketResponse
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)
    loads: int = 0
    _session: str = ""
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _waiting: dict[int, asyncio.Future[dict[str, Any]]] = field(default_factory=dict)

    async def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command of the protocol; raises ``AssertionError`` with the browser's words when it refuses."""
        number = next(self._numbers)
        answered = self._waiting[number] = asyncio.get_running_loop().create_future()
        message: dict[str, Any] = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        await self._socket.send_str(json.dumps(message))
        async with patience():
            answer = await answered
        del self._waiting[number]
        assert "error" not in answer, f"{method}: {answer['error']}"
        result: dict[str, Any] = answer["result"]
        return result

    async def look(self, width: int, height: int, scheme: str = "light") -> None:
        """Be a screen of that size and colour scheme; a narrow one is a phone's.

        Returns when the page has its new shape."""
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        still = {"name": "prefers-reduced-motion", "value": "reduce"}
        await self.call(
            "Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}, still]
        )
        # What observes its size has had its turn after the second frame.
        await self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    async def go(self, address: str) -> None:
        """Open ``address``, and wait until it has loaded."""
        before = self.loads
        answer = await self.call("Page.navigate", url=address)
        assert "errorText" not in answer, f"{address}: {answer['errorText']}"
        await eventually(lambda: self.loads > before, f"{address} has loaded")

    async def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, of a promise what it becomes."""
        answer = await self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    async def until(self, condition: str) -> None:
        """Wait until a JavaScript expression is true."""
        look = (
            f"new Promise(done => {{ const look = () => ({condition}) ? done(true) : setTimeout(look, 20); look(); }})"
        )
        try:
            await self.evaluate(look)
        except TimeoutError:
            seen = await self.evaluate("document.body.innerText")
            raise AssertionError(f"never came true: {condition}; the page says:\n{seen}") from None

    async def picture(self) -> bytes:
        """The whole page as PNG."""
        size = (await self.call("Page.getLayoutMetrics"))["cssContentSize"]
        clip = {"x": 0, "y": 0, "width": size["width"], "height": size["height"], "scale": 1}
        shot = await self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True, clip=clip)
        return base64.b64decode(shot["data"])

    async def _read(self) -> None:
        async for message in self._socket:
            told = json.loads(message.data)
            if "id" in told:
                if (future := self._waiting.get(told["id"])) and not future.done():
                    future.set_result(told)
            else:
                self._heard(told["method"], told["params"])

    def _heard(self, event: str, told: dict[str, Any]) -> None:
        match event:
            case "Page.loadEventFired":
                self.loads += 1
            case "Network.requestWillBeSent":
                self.requests.append(told["request"]["url"])
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(told["exceptionDetails"]))
            case "Runtime.consoleAPICalled" if told["type"] in {"error", "warning", "assert"}:
                self.complaints.append(json.dumps(told["args"]))
            case "Log.entryAdded" if told["entry"]["level"] in {"error", "warning"}:
                self.complaints.append(f"{told['entry']['text']} {told['entry'].get('url', '')}")


@contextlib.asynccontextmanager
async def open_page(browser: str) -> AsyncIterator[Page]:
    """A new empty page of the browser whose DevTools are at ``browser``."""
    async with aiohttp.ClientSession() as session, session.ws_connect(browser, max_msg_size=0) as socket:
        page = Page(socket)
        reader = asyncio.create_task(page._read())
        try:
            context = (await page.call("Target.createBrowserContext"))["browserContextId"]
            target = (await page.call("Target.createTarget", url="about:blank", browserContextId=context))["targetId"]
            page._session = (await page.call("Target.attachToTarget", targetId=target, flatten=True))["sessionId"]
            for domain in ("Page", "Runtime", "Network", "Log"):
                await page.call(f"{domain}.enable")
            yield page
            page._session = ""
            await page.call("Target.disposeBrowserContext", browserContextId=context)
        finally:
            reader.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await reader
