"""The publisher in memory speaks the protocol, honestly or not."""

from __future__ import annotations

from subscriber_sdk import Subscriber, Update
from subscriber_sdk.options.subscriber_options import Options
from subscriber_sdk.testing import ScriptedPublisher, frames, marker_at, update
from subscriber_sdk.work.shards import Shards


class Idle(Subscriber):
    async def on_update(self, update: Update) -> None:
        pass


async def test_it_collects_answers_by_kind() -> None:
    options = Options(application="app", id="one", listen="127.0.0.1:1")
    shards = Shards(Idle(), options)
    publisher = ScriptedPublisher(shards, options)
    publisher.send(frames.hello("app"))
    assert [frame.welcome.subscriber for frame in publisher.take("welcome")] == ["one"]
    assert publisher.take("welcome") == []
    publisher.teach([update("t", key=1).schema])
    publisher.send(frames.revoke(5, 1))
    assert publisher.closed
    await shards.close()


def test_parts_join_to_the_body() -> None:
    parts = [frame.part for frame in frames.parts(1, 1, 1, b"abcdefg", 3)]
    assert b"".join(part.data for part in parts) == b"abcdefg"
    assert [part.last for part in parts] == [False, False, True]


def test_markers_are_places_with_an_anchor() -> None:
    assert marker_at(0).anchor is None
    assert str(marker_at(4)) == "1/1/4 (4)"
    anchor = marker_at(4).anchor
    assert anchor is not None
    assert anchor.begin == marker_at(3).order
