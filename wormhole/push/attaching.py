"""The metadata by which a subscriber that dials identifies itself to a publisher (docs/wire.md, "Attach")."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Self

from wormhole.coordination.access_tokens import LONGEST_TOKEN
from wormhole.coordination.port import WEIGHTS
from wormhole.model.errors import ProtocolError

__all__ = ["LONGEST_OBSERVED_S", "METHOD", "OBSERVE_METHOD", "OFFER_METHOD", "SERVICE", "Attaching"]

SERVICE: Final = "wormhole.wire.v1.Publisher"
METHOD: Final = f"/{SERVICE}/Attach"
OFFER_METHOD: Final = f"/{SERVICE}/OfferReplay"
OBSERVE_METHOD: Final = f"/{SERVICE}/Observe"

_LONGEST: Final = 255
_NAMES: Final = ("wormhole-application-bin", "wormhole-subscriber-bin", "wormhole-instance")
_WEIGHT: Final = "wormhole-weight"
_PROOF: Final = "wormhole-token"
_OBSERVE: Final = "wormhole-observe"
LONGEST_OBSERVED_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Attaching:
    """A subscriber that dials: its application, its id, its process, and its share of the shards.

    ``instance``: a random text of the process, so that the publisher distinguishes a process that connects again from
    another one with the same id. ``token``: the secret that proves the application; empty: none. ``observes``: how many
    seconds a client only observes what the application receives; 0: the client is a subscriber.
    """

    application: str
    subscriber: str
    instance: str
    weight: float = 1.0
    token: str = field(default="", repr=False)
    observes: float = 0.0

    def to_metadata(self) -> tuple[tuple[str, str | bytes], ...]:
        """The metadata of the call."""
        application, subscriber, instance = _NAMES
        return (
            (application, self.application.encode()),
            (subscriber, self.subscriber.encode()),
            (instance, self.instance),
            (_WEIGHT, repr(self.weight)),
            *([(_PROOF, self.token)] if self.token else []),
            *([(_OBSERVE, repr(self.observes))] if self.observes else []),
        )

    @classmethod
    def from_metadata(cls, metadata: Iterable[tuple[str, Any]]) -> Self:
        """Inverse of :meth:`to_metadata`. Raises :class:`~wormhole.model.errors.ProtocolError`."""
        given = {name: value for name, value in metadata if name in {*_NAMES, _WEIGHT, _PROOF, _OBSERVE}}
        texts = []
        for name in _NAMES:
            value = given.get(name, b"")
            try:
                text = value.decode() if isinstance(value, bytes) else str(value)
            except UnicodeDecodeError:
                text = ""
            if not 0 < len(text) <= _LONGEST or not text.isprintable():
                raise ProtocolError(f"metadata {name}: a text of 1 to {_LONGEST} characters is expected")
            texts.append(text)
        weight = _number(given, _WEIGHT, 1.0, WEIGHTS)
        observes = _number(given, _OBSERVE, 0.0, (1.0, LONGEST_OBSERVED_S))
        token = str(given.get(_PROOF, ""))
        if len(token) > LONGEST_TOKEN:
            raise ProtocolError(f"metadata {_PROOF}: a text of at most {LONGEST_TOKEN} characters is expected")
        application, subscriber, instance = texts
        return cls(application, subscriber, instance, weight, token, observes)


def _number(given: dict[str, Any], name: str, default: float, bounds: tuple[float, float]) -> float:
    if name not in given:
        return default
    try:
        number = float(given[name])
    except ValueError:
        number = 0.0
    if not bounds[0] <= number <= bounds[1]:
        raise ProtocolError(f"metadata {name}: a number from {bounds[0]:g} to {bounds[1]:g} is expected")
    return number
