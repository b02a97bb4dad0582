"""What the log shows when a callback fails: the application's own line first."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from subscriber_sdk import FlowHalted, NoticeKind, RetryPolicy, ShardNotice, Subscriber, Update
from subscriber_sdk.calls.failure_report import change_of, headline
from subscriber_sdk.testing import Kit, update
from wormhole.host.logs import TextFormatter
from wormhole.model.errors import DecodeError, HandlerFailed

HERE = __file__


class Failing(Subscriber):
    async def on_update(self, update: Update) -> None:
        charge(update)


class FailingInThread(Subscriber):
    def on_update(self, update: Update) -> None:
        charge(update)


class Forever(Subscriber):
    async def on_update(self, update: Update) -> None:
        await asyncio.sleep(1e9)


def charge(update: Update) -> None:
    raise LookupError("no card\nof this name")


def logged(kit: Kit, caplog: pytest.LogCaptureFixture, subscriber: Subscriber, **options: Any) -> list[str]:
    """What two attempts for one update write, as ``run`` sets logging up."""
    flow = kit.attach(subscriber, retry=RetryPolicy(attempts=2), **options)
    with pytest.raises(HandlerFailed):
        flow.commit(update("shop.users", key=17, after={"email": "ada@example.com"}))
    formatter = TextFormatter(colours=False)
    texts = [formatter.format(record) for record in caplog.records if "attempt" in record.getMessage()]
    return [text.partition("] ")[2] for text in texts]  # behind time and level


@pytest.mark.parametrize("subscriber", [Failing(), FailingInThread()])
@pytest.mark.parametrize("concurrency", [1, 4])
def test_the_line_that_raised_comes_first_then_the_next_step(
    wormhole_kit: Kit, caplog: pytest.LogCaptureFixture, subscriber: Subscriber, concurrency: int
) -> None:
    first, second, halted = logged(wormhole_kit, caplog, subscriber, concurrency=concurrency)
    line = charge.__code__.co_firstlineno + 1
    message, _, frames = first.partition("\n")
    assert message.startswith(
        f"{HERE}:{line} in charge: LookupError: no card of this name at update test:1:0, insert of shop.users:17; "
        "flow shop epoch 1: attempt 1 of 2 failed, the next one in 0."
    )
    assert [text.split('"')[1] for text in frames.splitlines() if 'File "' in text] == [HERE, HERE]
    assert "attempt 2 of 2 failed, the last one" in second
    assert "is halted at update test:1:0 after 2 attempts" in halted
    assert "ada@example.com" not in caplog.text


def test_attempts_between_the_first_and_the_last_are_one_line_each(
    wormhole_kit: Kit, caplog: pytest.LogCaptureFixture
) -> None:
    flow = wormhole_kit.attach(Failing(), retry=RetryPolicy(attempts=4))
    with pytest.raises(HandlerFailed):
        flow.commit(update("shop.users", key=17))
    attempts = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert [bool(record.exc_info) for record in attempts] == [True, False, False, True]


@pytest.mark.parametrize("concurrency", [1, 4])
def test_a_callback_whose_time_is_over_is_shown_where_it_waited(
    wormhole_kit: Kit, caplog: pytest.LogCaptureFixture, concurrency: int
) -> None:
    (text, *_) = logged(wormhole_kit, caplog, Forever(), concurrency=concurrency, handler_timeout=2)
    line = Forever.on_update.__code__.co_firstlineno + 1
    assert text.startswith(f"{HERE}:{line} in on_update: TimeoutError: on_update ran longer than handler_timeout = 2 s")
    assert "subscriber_sdk/" not in text.replace(HERE, "")


def test_the_alarm_and_the_revocation_show_their_line_too(wormhole_kit: Kit, caplog: pytest.LogCaptureFixture) -> None:
    class Sore(Failing):
        async def on_error(self, error: FlowHalted) -> None:
            raise OSError("alarm is down")

        async def on_shard_notice(self, notice: ShardNotice) -> None:
            if notice.kind is NoticeKind.REVOKED:
                raise OSError("cannot forget")

    flow = wormhole_kit.attach(Sore(), retry=RetryPolicy(attempts=1))
    with pytest.raises(HandlerFailed):
        flow.commit(update("t", key=1))
    flow.revoke()
    for callback, error in ((Sore.on_error, "alarm is down"), (Sore.on_shard_notice, "cannot forget")):
        line = f"{HERE}:%d in {callback.__name__}: OSError: {error}; {callback.__name__}"
        raised = callback.__code__.co_firstlineno + (1 if callback is Sore.on_error else 2)
        assert line % raised in caplog.text


def test_without_a_frame_of_the_application_the_exception_is_shown_alone() -> None:
    assert headline(DecodeError("row 3 ends amid a number")) == (
        "wormhole.model.errors.DecodeError: row 3 ends amid a number [log-undecodable]"
    )


def test_a_row_is_shown_without_its_values_and_shortened(wormhole_kit: Kit) -> None:
    seen: list[str] = []

    class Rows(Subscriber):
        async def on_update(self, update: Update) -> None:
            seen.append(change_of(update))

    wormhole_kit.attach(Rows()).commit(update("t", key="k" * 900, after={"v": "secret"}))
    assert seen == [f"insert of t:{'k' * 198}... (902 characters)"]
