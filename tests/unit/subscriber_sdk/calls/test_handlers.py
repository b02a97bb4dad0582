"""Which callbacks are overridden, and where they run."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from subscriber_sdk import Subscriber
from subscriber_sdk.calls.handlers import Handlers, each_in_thread
from subscriber_sdk.testing.clock import InlineExecutor


class One(Subscriber):
    async def on_update(self, update: Any) -> None:
        pass


class Many(Subscriber):
    def on_updates(self, batch: Any) -> None:
        pass


def test_the_update_callback_is_recognised() -> None:
    one, many = Handlers(One()), Handlers(Many())
    assert (one.batched, one.threaded) == (False, False)
    assert (many.batched, many.threaded) == (True, True)


def test_both_are_one_too_many() -> None:
    class Both(One, Many):
        pass

    with pytest.raises(TypeError, match="Both overrides both on_update and on_updates"):
        Handlers(Both())


def test_neither_would_receive_nothing() -> None:
    with pytest.raises(TypeError, match="none of on_update, on_updates, on_arrow"):
        Handlers(Subscriber())


def test_anything_else_is_no_subscriber() -> None:
    with pytest.raises(TypeError, match=r"no subscriber_sdk\.Subscriber"):
        Handlers(object())  # type: ignore[arg-type]


def test_a_callback_set_on_the_object_counts() -> None:
    subscriber = Subscriber()
    subscriber.on_update = lambda update: None  # type: ignore[method-assign]
    assert Handlers(subscriber).threaded


def test_a_callable_object_may_be_asynchronous() -> None:
    class Callback:
        async def __call__(self, update: Any) -> None:
            pass

    subscriber = Subscriber()
    subscriber.on_update = Callback()  # type: ignore[method-assign]
    assert not Handlers(subscriber).threaded


async def test_callbacks_that_are_not_overridden_answer_their_default() -> None:
    handlers = Handlers(One())
    assert await handlers.call("on_shard_notice", None) is None


async def test_plain_callbacks_run_in_a_thread() -> None:
    class Plain(One):
        def on_error(self, error: Any) -> Any:
            return threading.current_thread().name

    handlers = Handlers(Plain())
    assert (await handlers.call("on_error", None)).startswith("wormhole-handler")
    handlers.close()
    handlers.close()


async def test_async_behind_a_plain_def_is_an_error_not_a_silence() -> None:
    class Hidden(One):
        def on_error(self, error: Any) -> Any:
            return asyncio.sleep(0)

    handlers = Handlers(Hidden(), InlineExecutor())
    with pytest.raises(TypeError, match="declare it with async def"):
        await handlers.call("on_error", None)


def test_each_stops_on_request() -> None:
    heard: list[int] = []
    assert not each_in_thread(heard.append, [1, 2, 3], lambda n: n < 3)
    assert heard == [1, 2]
    assert each_in_thread(heard.append, [4], lambda n: True)
