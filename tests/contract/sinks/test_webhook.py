"""The contract of sinks over signed webhooks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from aiohttp import web

from sinks.port import Sink, SinkKind
from sinks.testing.contract import RecordSinkContract
from sinks.testing.harness import TABLES, RecordHarness
from sinks.webhook.kind import KIND
from subscriber_sdk.testing import Kit, update
from tests.support.webhook_receiver import Request, WebhookReceiver

# The kit calls what would run in a thread in place, on its loop.
pytestmark = pytest.mark.allow_blocking

_POISON = "what the receiver refuses"


class WebhookHarness(RecordHarness):
    """A receiver on the loop of the kit."""

    kind: ClassVar[SinkKind[Any]] = KIND
    refused = update(TABLES[0], key=99, after={"text": _POISON})

    def __init__(self, kit: Kit, folder: Path) -> None:
        self._kit = kit
        self._receiver = WebhookReceiver(answer=self._answer)
        self._secret_file = self._receiver.write_secret(folder)
        self._ids: list[str] = []
        self._sinks: list[Sink] = []
        kit.run(self._receiver.start())

    @property
    def settings(self) -> Mapping[str, object]:
        return {"url": self._receiver.url, "secret_file": str(self._secret_file)}

    @contextmanager
    def away(self) -> Iterator[None]:
        self._kit.run(self._receiver.stop())
        try:
            yield
        finally:
            self._kit.run(self._receiver.start(self._receiver.port))

    def open(self) -> Sink:
        self._sinks.append(super().open())
        return self._sinks[-1]

    def ids(self) -> Sequence[str]:
        return [id_.split("/")[2] for id_ in self._ids]

    def close(self) -> None:
        """Also the sinks whose processes died."""
        for sink in self._sinks:
            self._kit.run(sink.close())
        self._kit.run(self._receiver.stop())

    async def _answer(self, request: Request, _: web.Request) -> web.Response:
        if any(_POISON in str(item["value"]) for item in request.body["data"]):
            return web.Response(status=422)
        self._ids += request.ids
        return web.Response(status=204)


@pytest.fixture
def harness(wormhole_kit: Kit, tmp_path: Path) -> Iterator[WebhookHarness]:
    harness = WebhookHarness(wormhole_kit, tmp_path)
    yield harness
    harness.close()


class TestWebhook(RecordSinkContract):
    pass
