"""Moves of a flow's datamarker that its application did not make: by an operator, by a replay. Pure.

Each has a number that is above those of all earlier moves of the flow. An application that stores its datamarker with
its state stores the number of the last move that it knows beside it. So a datamarker that it stored before a move and
one that it stored after can be distinguished, however often the move is reported.
"""

from __future__ import annotations

__all__ = ["is_from_before", "refuses_later"]


def is_from_before(move: int, *, known: int) -> bool:
    """Whether the application stored its datamarker before the last move, of number ``move``. ``known``: the number
    that it stored.
    """
    return known < move


def refuses_later(move: int, *, rewound: bool, known: int) -> bool:
    """Whether a datamarker of the application is refused if it is after the flow's. ``known``: the number of the last
    move that the application stored with it; 0: none. ``rewound``: as in an assignment. ``move`` is 0 if the datamarker
    was set back by a publisher of an earlier release.
    """
    return rewound and (not move or is_from_before(move, known=known))
