"""Checks the tokens of subscribers that dial, and limits hosts that guess tokens."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass, field
from typing import Final

from wormhole.coordination.access_tokens import AccessToken, find, hash_of
from wormhole.host.clock import Clock
from wormhole.model.errors import Retryable, UsageError, WormholeError

__all__ = ["AttachTokens", "host_of"]

_log = logging.getLogger(__name__)

_LOOK_S: Final = 1.0  # a stream ends within this time after its token was revoked
_RETRY_S: Final = 2.0
_GUESSES: Final = 10
_WITHIN_S: Final = 60.0
_MOST_HOSTS: Final = 4096


@dataclass(slots=True)
class _Host:
    """The attempts of one host. ``guesses``: hashes of wrong tokens, and when each was first offered. ``proven``:
    hashes of tokens that admitted a client.
    """

    guesses: dict[str, float] = field(default_factory=dict)
    proven: set[str] = field(default_factory=set)


class AttachTokens:
    """The tokens of the applications that are followed. ``watch``: the coordinator's watch of an application's tokens.

    A host that offered ten different wrong tokens within a minute is refused until the minute is over. A token that
    admitted a client from that host before stays accepted. So one user does not lock out the other users of the host or
    of a load balancer. Repeated attempts with the same revoked token count once.
    """

    def __init__(self, watch: Callable[[str], AsyncIterator[tuple[AccessToken, ...]]], clock: Clock) -> None:
        self._watch = watch
        self._clock = clock
        self._tokens: dict[str, tuple[AccessToken, ...]] = {}
        self._watches: dict[str, asyncio.Task[None]] = {}
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    def follow(self, applications: Collection[str]) -> None:
        """Follow the tokens of these applications, and of no others, until :meth:`stop`."""
        for name in self._watches.keys() - set(applications):
            self._watches.pop(name).cancel()
            self._tokens.pop(name, None)
        for name in set(applications) - self._watches.keys():
            self._watches[name] = asyncio.create_task(self._follow(name), name=f"tokens-{name}")

    async def stop(self) -> None:
        """Stop following tokens."""
        watches = tuple(self._watches.values())
        self.follow(())
        await asyncio.gather(*watches, return_exceptions=True)

    def check(self, application: str, text: str, host: str) -> AccessToken:
        """The application's token with the ``text`` that ``host`` offers.

        Raises :class:`~wormhole.model.errors.UsageError` for a wrong token, and
        :class:`~wormhole.model.errors.Retryable` before the application's tokens are known.
        """
        if application in self._watches and application not in self._tokens:
            raise Retryable(
                f"the tokens of {application} are not known yet",
                hint="nothing to do: a retry follows; if this lasts, bring the coordination service back",
                code="coordination-lost",
            )
        token = find(self._tokens.get(application, ()), text)
        known, hashed, now = self._host(host), hash_of(text), self._clock.monotonic()
        known.guesses = {guess: at for guess, at in known.guesses.items() if now - at < _WITHIN_S}
        if len(known.guesses) >= _GUESSES and hashed not in known.proven | known.guesses.keys():
            raise _refused(f"{host} offered {_GUESSES} wrong tokens within a minute", "wait a minute, and correct them")
        if token is None:
            known.guesses.setdefault(hashed, now)
            raise self._wrong(application, text)
        if not token.is_valid(self._clock.wall()):
            raise _expired(application, token)
        known.proven.add(token.hash)
        return token

    async def until_void(self, application: str, token: AccessToken) -> WormholeError:
        """Wait until the token is revoked or expires. Returns the reason."""
        while True:
            await self._clock.sleep(_LOOK_S)
            if token not in self._tokens.get(application, (token,)):
                return _refused(f"the token {token.id} of {application} was revoked", _anew(application))
            if not token.is_valid(self._clock.wall()):
                return _expired(application, token)

    def _wrong(self, application: str, text: str) -> UsageError:
        """The error for ``text``, which is not a token of the application."""
        for name, tokens in self._tokens.items():
            if (token := find(tokens, text)) is not None:
                what = f"the token {token.id} is one of the application {name}, and not of {application}"
                return _refused(what, f"attach as a subscriber of {name}, or {_anew(application)}")
        return _refused(f"{application} has no such token", _anew(application))

    def _host(self, host: str) -> _Host:
        known = self._hosts.setdefault(host, _Host())
        self._hosts.move_to_end(host)
        if len(self._hosts) > _MOST_HOSTS:
            self._hosts.popitem(last=False)
        return known

    async def _follow(self, application: str) -> None:
        said = ""
        while True:
            try:
                async for tokens in self._watch(application):
                    self._tokens[application], said = tokens, ""
                return
            except WormholeError as error:
                if said != str(error):
                    said = str(error)
                    _log.error("the tokens of %s cannot be read, a retry follows: %s", application, error)
                await self._clock.sleep(_RETRY_S)


def host_of(peer: str) -> str:
    """The host of ``peer`` (``ipv4:HOST:PORT``, ``ipv6:[HOST]:PORT``), whose attempts count together. For IPv6 this is
    the first 64 bits of the address, because a host may choose the remaining bits.
    """
    host = peer.partition(":")[2].rpartition(":")[0].strip("[]").partition("%")[0]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    address = getattr(address, "ipv4_mapped", None) or address
    if address.version == 4 or address.is_loopback:
        return str(address)
    return str(ipaddress.ip_network((int(address), 64), strict=False))


def _anew(application: str) -> str:
    return f"`wormholectl tokens create {application}`, and give the subscriber that token (WORMHOLE_TOKEN)"


def _expired(application: str, token: AccessToken) -> UsageError:
    return _refused(f"the token {token.id} of {application} has expired", _anew(application))


def _refused(why: str, hint: str) -> UsageError:
    return UsageError(why, hint=hint, code="token-refused")
