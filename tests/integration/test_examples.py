"""The examples for FastAPI, Django and Celery, run as their first lines say.

Each test imports its framework itself: every process of a run reads this module, and one runs it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from scripts.prepare import ROOT
from subscriber_sdk import RetryPolicy
from subscriber_sdk.testing import Kit, update
from tests.support.dialled import dialled
from tests.support.eventually import PATIENCE_S, patience, until
from tests.support.ports import free_port
from wormhole.model.errors import HandlerFailed


async def test_fastapi_forgets_a_user_whose_row_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    import uvicorn

    from examples import fastapi_app

    listen, port = f"127.0.0.1:{free_port()}", free_port()
    monkeypatch.setenv("WORMHOLE_LISTEN", listen)
    monkeypatch.setenv("WORMHOLE_ID", "one")
    names = ["Ann", "Anne", "Anna"]
    meanwhile: list[Coroutine[Any, Any, None]] = []

    async def load(number: int) -> dict[str, Any]:
        row = {"id": number, "name": names.pop(0)}
        for one in meanwhile:
            await one
        meanwhile.clear()
        return row

    monkeypatch.setattr(fastapi_app, "load_user", load)
    server = uvicorn.Server(uvicorn.Config(fastapi_app.app, port=port, log_level="warning"))
    serving = asyncio.create_task(server.serve())
    async with dialled(listen, wait=True) as publisher, aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:

        async def name() -> object:
            async with session.get("/users/7") as answer:
                return (await answer.json())["name"]

        async def commit(number: int) -> None:
            await publisher.commit(number, update("shop.users", key=7, before={"name": "a"}, after={"name": "b"}))
            await publisher.next("ack")

        await publisher.open("web")
        async with patience():
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
        assert [await name(), await name()] == ["Ann", "Ann"]
        await commit(1)
        meanwhile.append(commit(2))
        assert await name() == "Anne"
        assert [await name(), await name()] == ["Anna", "Anna"]
        server.should_exit = True
        await serving


async def test_django_forgets_a_user_whose_row_changed(tmp_path: Path) -> None:
    from django.core.cache.backends.filebased import FileBasedCache

    listen = f"127.0.0.1:{free_port()}"
    cache = FileBasedCache(str(tmp_path), {})
    await asyncio.to_thread(cache.set, "user:7", "old")
    await asyncio.to_thread(cache.set, "user:8", "kept")
    environment = {
        "DJANGO_SETTINGS_MODULE": "examples.django_shop.settings",
        "SHOP_CACHE": str(tmp_path),
        "WORMHOLE_LISTEN": listen,
        "WORMHOLE_ID": "one",
    }
    command = (sys.executable, "-m", "django", "forget_changed_users")
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, env=environment)
    try:
        async with dialled(listen, wait=True) as publisher:
            await publisher.open("cache")
            await publisher.commit(1, update("shop.users", key=7, before={"name": "a"}, after={"name": "b"}))
            await publisher.next("ack")
            assert await asyncio.to_thread(cache.get_many, ["user:7", "user:8"]) == {"user:8": "kept"}
            process.send_signal(signal.SIGTERM)
            async with patience():
                assert await process.wait() == 0
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.fixture
def _logging_untouched() -> Iterator[None]:
    """A worker of Celery configures the root logger of its process, which later tests would notice."""
    from celery.signals import setup_logging

    def leave_it(**_: object) -> None:
        pass

    setup_logging.connect(leave_it)
    yield
    setup_logging.disconnect(leave_it)


@pytest.mark.usefixtures("_logging_untouched")
@pytest.mark.allow_blocking("Celery, in place of the thread that it has in production")
def test_celery_gets_a_task_before_the_update_is_acknowledged(
    wormhole_kit: Kit, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from celery.contrib.testing.worker import start_worker

    from examples import celery_app

    folder = tmp_path / "broker"
    ran: list[tuple[str, str]] = []

    def welcome(user: dict[str, Any]) -> None:
        ran.append((celery_app.welcome.request.id or "", user["name"]))

    monkeypatch.setattr(celery_app.welcome, "run", welcome)
    transport = {
        "data_folder_in": str(folder),
        "data_folder_out": str(folder),
        "control_folder": str(tmp_path / "control"),
        "polling_interval": 0.05,
    }
    celery_app.app.conf.update(broker_url="filesystem://", broker_transport_options=transport)
    flow = wormhole_kit.attach(celery_app.ToTasks(), retry=RetryPolicy(attempts=2, first_wait=1.0))
    before = flow.datamarker
    user = update("shop.users", key=7, after={"id": 7, "name": "Ann"})
    with pytest.raises(HandlerFailed) as caught:
        flow.commit(user)
    assert isinstance(caught.value.__cause__, FileNotFoundError)
    assert flow.datamarker == before, "the broker has no task"
    folder.mkdir()
    flow.crash_and_redeliver()
    assert flow.datamarker == flow.end
    assert len(list(folder.iterdir())) == 1
    with start_worker(celery_app.app, perform_ping_check=False, shutdown_timeout=PATIENCE_S):
        until(lambda: ran, "the task did not run")
    assert ran == [("test:1:0", "Ann")]
