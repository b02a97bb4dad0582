from __future__ import annotations

from collections.abc import Callable

import pytest

from datastores.mysql.history.confirmation import Confirmation, Unconfirmed
from wormhole.model.errors import Diverged, PositionError, SourceUnavailable


def test_what_one_connection_says_again_and_again_is_not_believed() -> None:
    confirmation = Confirmation()
    believe = confirmation.by(object())
    for _ in range(3):
        with pytest.raises(Unconfirmed, match="another server") as error:
            believe("another server")
        assert error.value.hint


def test_what_another_connection_says_too_is_believed_from_then_on() -> None:
    confirmation, first = Confirmation(), object()
    with pytest.raises(Unconfirmed):
        confirmation.by(first)("another server")
    with pytest.raises(Unconfirmed):
        confirmation.by(object())("a third server")
    confirmation.by(object())("another server")
    confirmation.by(first)("another server")


def test_what_is_kept_is_bounded() -> None:
    confirmation = Confirmation()
    for n in range(10_000):
        with pytest.raises(Unconfirmed):
            confirmation.believe(str(n), object())
    assert len(confirmation._answers) < 1000
    confirmation.believe("9999", object())


def scripted(*answers: Exception | str) -> Callable[[], str]:
    left = list(answers)

    def ask() -> str:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return ask


def test_an_error_that_somebody_has_to_act_on_has_to_come_twice() -> None:
    assert Confirmation().twice(scripted(Diverged("not here"), "here")) == "here"
    assert Confirmation().twice(scripted(PositionError("no place"), "here")) == "here"
    with pytest.raises(Diverged, match="not here"):
        Confirmation().twice(scripted(Diverged("not here"), Diverged("not here")))
    with pytest.raises(Diverged, match="not there"):
        Confirmation().twice(scripted(Diverged("not here"), Diverged("not there"), Diverged("not there")))


def test_a_doubt_is_asked_about_at_once_and_not_for_ever() -> None:
    assert Confirmation().twice(scripted(Unconfirmed("x"), Unconfirmed("y"), "here")) == "here"
    with pytest.raises(SourceUnavailable, match="answer 9"):
        Confirmation().twice(lambda: Confirmation().believe("answer 9", object()))


def test_every_other_error_is_raised_as_it_comes() -> None:
    with pytest.raises(SourceUnavailable, match="away"):
        Confirmation().twice(scripted(SourceUnavailable("away")))
