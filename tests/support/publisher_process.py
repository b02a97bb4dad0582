"""A publisher of one log in a process of its own, without ZooKeeper, and what an operator asks it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.support.eventually import patience, until
from tests.system.harness.programs import Command
from wormhole.admin import admin_service
from wormhole.admin.admin_service import Answer
from wormhole.host.ready_file import ReadyFile, read_ready, ready_path
from wormhole.model.errors import StreamBroken
from wormhole.wire.v1 import admin_pb2

QUICK: Final = 'heartbeat = "500ms"\ngrace_period = "1s"'
_LOG: Final = ("shop", "main", "db1")


class PublisherProcess(Command):
    """Serves the log ``shop/main/db1``; not started.

    ``source``, ``applications``, ``publisher``, ``dataset``: what the configuration says of them, in TOML.
    """

    def __init__(
        self, folder: Path, source: str, applications: str, *, publisher: str = QUICK, dataset: str = ""
    ) -> None:
        self.state, self.config = folder / "state", folder / "shop.toml"
        super().__init__("publisher", folder, "publisher", "run", "-c", str(self.config), "--log", "/".join(_LOG))
        self.config.write_text(f"""
version = 1
[coordinator]
static = true
[publisher]
state_dir = "{self.state}"
{publisher}
[datasets.shop]
{dataset}
[datasets.shop.copies.main.logs.db1]
{source}
{applications}
""")

    def serves(self) -> ReadyFile | None:
        """Where it answers, once it serves."""
        ready = read_ready(ready_path(self.state, *_LOG))
        assert ready is not None or self.alive, self.tail()
        return ready

    def answer(self) -> Answer | None:
        """What it reports; nothing while it does not answer."""
        if (ready := self.serves()) is None:
            return None
        try:
            return Answer(ready.admin, admin_service.describe(ready.admin), state_dir=self.state)
        except StreamBroken:
            return None  # it was killed a moment ago, or the machine is busy

    def flow(self, application: str) -> admin_pb2.FlowStatus | None:
        """The application's flow, once there is one."""
        answer = self.answer()
        flows = () if answer is None or answer.status is None else answer.status.flows
        return next((flow for flow in flows if flow.flow == f"{application}/db1"), None)

    def change(self, application: str, what: str, *, preview: bool = False, **fields: Any) -> admin_pb2.ChangeReply:
        """Do what an operator may do with the application's flow."""
        answer = until(self.answer, self.tail)
        assert answer is not None
        asked = admin_pb2.ChangeRequest(who="maria@ops", flow=f"{application}/db1", preview=preview)
        getattr(asked, what).SetInParent()
        for name, value in fields.items():
            setattr(getattr(asked, what), name, value)
        return admin_service.change(answer, asked)

    async def becomes(self, application: str, true: Callable[[admin_pb2.FlowStatus], object]) -> admin_pb2.FlowStatus:
        """Wait until the flow is so."""
        async with patience():
            while True:
                flow = await asyncio.to_thread(self.flow, application)
                if flow is not None and true(flow):
                    return flow
                await asyncio.sleep(0.05)

    def history(self) -> list[str]:
        """What operators did, oldest first."""
        return [json.loads(line)["what"] for line in (self.state / "history.jsonl").read_text().splitlines()]
