"""Compares a datamarker that an application stored with moves of its flow's datamarker by operators and replays. Pure.

The moves of a flow have ascending numbers. An application that stores its datamarker with its state also stores the
number of the last move that it knows. This number shows whether the datamarker was stored before or after a move,
however often the move is reported.
"""

from __future__ import annotations

__all__ = ["is_from_before", "refuses_later"]


def is_from_before(move: int, *, known: int) -> bool:
    """Whether the application stored its datamarker before the last move, of number ``move``. ``known``: the number
    that it stored.
    """
    return known < move


def refuses_later(move: int, *, rewound: bool, known: int) -> bool:
    """Whether the application's datamarker is refused if it is after the flow's. ``known``: the number of the last move
    that the application stored with it; 0: none. ``rewound``: as in an assignment. ``move``: 0 if a publisher of an
    earlier release set the flow's datamarker back.
    """
    return rewound and (not move or is_from_before(move, known=known))
