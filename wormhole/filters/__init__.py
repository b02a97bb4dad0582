"""The filter language: which updates a flow wants. ``docs/filters.md`` is its manual.

``lexer`` text to tokens -> ``parser`` tokens to a ``tree`` -> ``normal`` one form for one meaning, and its hash ->
``bound_to_schema`` a plan per table, of the functions that ``leaf_tests`` makes -> ``filter`` asks the plan of each
update of a run, through the ``view`` that filters share. ``capabilities`` knows what a kind of source can decide.
``projection`` is which columns of the selected updates are sent, and in which form.
"""

from __future__ import annotations

from wormhole.filters.filter import Filter, Selection, explain
from wormhole.filters.projection import MaskKey, Projection
from wormhole.filters.view import RunView

__all__ = ["Filter", "MaskKey", "Projection", "RunView", "Selection", "explain"]
