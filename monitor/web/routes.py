"""The HTTP routes of the status page: ``/`` and its files, ``/api/status`` and ``/api/events``.

``/api/events`` is a stream of server-sent events. ``status`` is a whole snapshot, which is sent after a change, at most
once a second. ``beat`` is a heartbeat, which is sent every few seconds without a change, so that a page notices a lost
monitor.
"""

from __future__ import annotations

import asyncio
import json
from importlib import resources
from typing import Any, Final

from aiohttp import web

from monitor.state import HostState
from monitor.web.snapshot import snapshot

__all__ = ["StatusPage", "add_routes"]

_WATCHERS: Final = 32
_PACE_S: Final = 1.0
_BEAT_S: Final = 3.0
_STALLED_S: Final = 10.0
_TYPES: Final = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
# The page may load only its own files. With `trusted-types 'none'` the browser refuses text that would become markup.
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)


def add_routes(app: web.Application, state: HostState) -> None:
    """Add the page of ``state`` to ``app``; its streams end when the application shuts down."""
    page = StatusPage(state)
    app.on_startup.append(page.start)
    app.on_shutdown.append(page.stop)
    app.add_routes(
        [
            web.get("/", page.index),
            web.get("/assets/{name}", page.asset),
            web.get("/api/status", page.status),
            web.get("/api/events", page.events),
        ]
    )


class StatusPage:
    """The handlers. ``watchers``: the most streams at a time; further streams are refused with 503. ``pace_s``: the
    least seconds between two snapshots in a stream. ``beat_s``: the most seconds without a message.
    """

    def __init__(
        self, state: HostState, watchers: int = _WATCHERS, pace_s: float = _PACE_S, beat_s: float = _BEAT_S
    ) -> None:
        self._state = state
        self._most = watchers
        self._pace_s = pace_s
        self._beat_s = beat_s
        self._assets: dict[str, bytes] = {}
        self._watchers: set[asyncio.Task[Any]] = set()
        self._encoded: tuple[int, float, bytes] = (-1, 0.0, b"")

    async def start(self, _app: web.Application) -> None:
        """Read the files of the page."""
        self._assets = await asyncio.to_thread(_read_assets)

    async def stop(self, _app: web.Application) -> None:
        """End the streams."""
        for watcher in self._watchers:
            watcher.cancel()

    async def index(self, _request: web.Request) -> web.Response:
        """``/``."""
        return self._file("index.html")

    async def asset(self, request: web.Request) -> web.Response:
        """``/assets/NAME``."""
        name = request.match_info["name"]
        if name not in self._assets or name == "index.html":
            raise web.HTTPNotFound(text="there is no such file\n")
        return self._file(name)

    def _file(self, name: str) -> web.Response:
        headers = {"Content-Security-Policy": _POLICY, "Cache-Control": "no-cache"}
        kind = _TYPES[name.rpartition(".")[2]]
        return web.Response(body=self._assets[name], content_type=kind, charset="utf-8", headers=headers)

    async def status(self, _request: web.Request) -> web.Response:
        """``/api/status``: a snapshot."""
        return web.Response(body=self._snapshot(), content_type="application/json", charset="utf-8")

    async def events(self, request: web.Request) -> web.StreamResponse:
        """``/api/events``: snapshots, as the state changes."""
        if len(self._watchers) >= self._most:
            raise web.HTTPServiceUnavailable(
                text=f"{self._most} pages watch this monitor already\n", headers={"Retry-After": "10"}
            )
        watcher = asyncio.current_task()
        assert watcher is not None
        self._watchers.add(watcher)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        try:
            await response.prepare(request)
            await self._send_changes(response)
        except (ConnectionError, TimeoutError):
            pass  # the browser closed the stream, or stopped reading
        finally:
            self._watchers.discard(watcher)
        return response

    async def _send_changes(self, response: web.StreamResponse) -> None:
        while True:
            seen = self._state.version
            await _send(response, "status", self._snapshot())
            await asyncio.sleep(self._pace_s)
            while not await self._changed(seen):
                await _send(response, "beat", b"{}")

    async def _changed(self, seen: int) -> bool:
        try:
            async with asyncio.timeout(self._beat_s):
                return await self._state.wait(seen) != seen
        except TimeoutError:
            return False

    def _snapshot(self) -> bytes:
        """One snapshot for all watchers of the same second."""
        version, now = self._state.version, self._state.clock.wall()
        if self._encoded[0] != version or abs(now - self._encoded[1]) > self._pace_s:
            # ASCII, because the last output of a process may contain bytes that are not UTF-8.
            text = json.dumps(snapshot(self._state, now), allow_nan=False, separators=(",", ":"))
            self._encoded = (version, now, text.encode("ascii"))
        return self._encoded[2]


async def _send(response: web.StreamResponse, event: str, data: bytes) -> None:
    async with asyncio.timeout(_STALLED_S):
        await response.write(b"event: %s\ndata: %s\n\n" % (event.encode(), data))


def _read_assets() -> dict[str, bytes]:
    folder = resources.files("monitor.web") / "assets"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES}
