"""Which keys that only an application holds are named as differences."""

from __future__ import annotations

from publisher.flows.verifications import Verifications
from publisher.push.flow import PublisherFlow
from wormhole.filters import Filter
from wormhole.model.position import Datamarker, LogPosition
from wormhole.model.verification import Difference, DifferenceKind, TableVerification

_AT = LogPosition(1, 1, 0)
_FLOW = PublisherFlow("app", "log", Filter.parse(None), Datamarker(_AT, "", _AT), _AT)
_KEYS = [Difference(DifferenceKind.EXTRA, key) for key in (b"a", b"b")]


def _found(verifications: Verifications) -> TableVerification:
    (found,) = verifications.of(_FLOW, 7)
    return found


def test_a_key_is_named_when_it_is_confirmed_and_asked_for_before() -> None:
    """One whose row was inserted meanwhile is no difference."""
    verifications = Verifications()
    verifications.begin(_FLOW, 7)
    verifications.add(_FLOW, TableVerification("t", compared=5, differences=tuple(_KEYS)))
    assert [*verifications.take_extra(_FLOW, "t")] == [b"a", b"b"]
    assert _found(verifications).differences == ()
    verifications.add(_FLOW, TableVerification("t", extra=1, removed=1, differences=(_KEYS[0],), ended=True))
    found = _found(verifications)
    assert (found.extra, found.removed, found.differences) == (1, 1, (_KEYS[0],))


def test_an_earlier_release_counts_a_key_when_it_asks() -> None:
    verifications = Verifications()
    verifications.begin(_FLOW, 7)
    verifications.add(_FLOW, TableVerification("t", extra=2, differences=tuple(_KEYS)))
    assert _found(verifications).differences == tuple(_KEYS)
