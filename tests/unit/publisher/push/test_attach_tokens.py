"""Whose token is accepted, and what somebody who guesses learns."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from publisher.push.attach_tokens import AttachTokens, host_of
from tests.support.clocks import ScriptedClock
from tests.support.eventually import eventually
from wormhole.coordination.access_tokens import AccessToken, new_token
from wormhole.coordination.memory import MemoryCoordinator
from wormhole.model.errors import ConfigError, Retryable, UsageError

TEXT, TOKEN = new_token(1000.0, 2000.0)
OTHER_TEXT, OTHER = new_token(1000.0, 0.0)


class Desk:
    """The tokens of two applications, and who offers what."""

    def __init__(self) -> None:
        self.clock = ScriptedClock()
        self.refusals: list[UsageError] = []
        self.coordinator = MemoryCoordinator()
        self.tokens = AttachTokens(self.coordinator.watch_tokens, self.clock.clock)

    async def store(self, application: str, *tokens: AccessToken) -> None:
        seen = self.coordinator.world.tokens.get(application, ())
        await self.coordinator.set_tokens(application, tokens, seen)

    def offer(self, text: str, application: str = "app", host: str = "10.0.0.1") -> str:
        """Which token was accepted, or why none."""
        try:
            return self.tokens.check(application, text, host).id
        except UsageError as error:
            self.refusals.append(error)
            return error.message

    def accepts(self, text: str, host: str = "10.0.0.1") -> bool:
        return self.offer(text, host=host) == TOKEN.id


@pytest.fixture
async def desk() -> AsyncIterator[Desk]:
    one = Desk()
    await one.coordinator.start()
    await one.store("app", TOKEN)
    await one.store("other", OTHER)
    one.tokens.follow(["app", "other"])
    await eventually(lambda: len(one.tokens._tokens) == 2, "they are known")
    yield one
    await one.tokens.stop()


@pytest.fixture
def guessed(desk: Desk) -> Desk:
    """One host guessed so often that it is refused."""
    for number in range(10):
        desk.offer(f"wormhole_{number}", host="10.0.0.9")
    return desk


async def test_a_token_is_accepted_until_it_expires(desk: Desk) -> None:
    assert desk.accepts(TEXT)
    desk.clock.now = 2000.0
    assert "expired" in desk.offer(TEXT)
    assert "no such token" in desk.offer(TEXT[:-1])
    assert "one of the application other" in desk.offer(OTHER_TEXT)
    assert desk.offer(OTHER_TEXT, "other") == OTHER.id
    assert {error.code for error in desk.refusals} == {"token-refused"}
    assert not any(TEXT[:-1] in str(error) or OTHER_TEXT in str(error) for error in desk.refusals)


async def test_nothing_is_accepted_of_an_application_that_is_not_followed(desk: Desk) -> None:
    desk.tokens.follow(["other"])
    assert "no such token" in desk.offer(TEXT)


async def test_before_the_tokens_are_known_it_is_tried_again(desk: Desk) -> None:
    desk.coordinator.suspend()
    desk.tokens.follow(["app", "other", "third"])
    with pytest.raises(Retryable) as refused:
        desk.tokens.check("third", TEXT, "10.0.0.1")
    assert refused.value.code == "coordination-lost"


async def test_a_host_that_guesses_is_refused_for_a_minute_and_others_are_not(guessed: Desk) -> None:
    assert "wrong tokens" in guessed.offer(TEXT, host="10.0.0.9")
    assert guessed.accepts(TEXT, host="10.0.0.1")
    guessed.clock.now += 60.0
    assert guessed.accepts(TEXT, host="10.0.0.9")


async def test_a_host_with_a_proven_token_keeps_it_while_another_process_of_it_guesses(desk: Desk) -> None:
    assert desk.accepts(TEXT, host="10.0.0.9")
    for number in range(20):
        desk.offer(f"wormhole_{number}", host="10.0.0.9")
    assert desk.accepts(TEXT, host="10.0.0.9")


async def test_a_wrong_token_that_is_offered_again_is_one_guess(desk: Desk) -> None:
    for _ in range(20):
        assert "no such token" in desk.offer("wormhole_revoked", host="10.0.0.9")
    assert desk.accepts(TEXT, host="10.0.0.9")


async def test_an_expired_token_is_no_guess(desk: Desk) -> None:
    desk.clock.now = 2000.0
    for _ in range(20):
        assert "expired" in desk.offer(TEXT)


async def test_the_memory_for_hosts_is_bounded(guessed: Desk) -> None:
    for number in range(5000):
        guessed.offer("wormhole_", host=f"host-{number}")
    assert len(guessed.tokens._hosts) == 4096
    assert guessed.accepts(TEXT, host="10.0.0.9")


async def test_a_token_is_void_once_it_is_revoked_or_expires(desk: Desk) -> None:
    desk.clock.now = 1990.0
    assert (await desk.tokens.until_void("app", TOKEN)).code == "token-refused"
    assert desk.clock.now == 2000.0
    revoked = asyncio.create_task(desk.tokens.until_void("other", OTHER))
    await desk.store("other")
    assert "revoked" in (await revoked).message


async def test_a_watch_that_fails_is_tried_again() -> None:
    failures = [ConfigError("it cannot be read"), ConfigError("it cannot be read")]

    async def watch(application: str) -> AsyncIterator[tuple[AccessToken, ...]]:
        if failures:
            raise failures.pop()
        yield (TOKEN,)

    tokens = AttachTokens(watch, ScriptedClock().clock)
    tokens.follow(["app"])
    await eventually(lambda: tokens._tokens, "the tokens")
    assert tokens.check("app", TEXT, "h") == TOKEN
    await tokens.stop()


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.0.0.1:4711", "10.0.0.1"),
        ("ipv6:[::1]:4711", "::1"),
        ("ipv6:[2001:db8:1:2:3::4]:4711", "2001:db8:1:2::/64"),
        ("ipv6:[fe80::1%eth0]:4711", "fe80::/64"),
        ("ipv6:[::ffff:10.0.0.1]:4711", "10.0.0.1"),
        ("unix:", ""),
    ],
)
def test_attempts_of_one_address_count_together(peer: str, host: str) -> None:
    assert host_of(peer) == host
