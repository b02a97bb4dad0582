"""The filter language, which selects the updates of a flow. ``docs/filters.md`` is its manual.

``lexer`` makes tokens of text. ``parser`` makes a ``tree`` of tokens. ``normal`` gives one form to filters of one
meaning, and hashes it. ``bound_to_schema`` makes a plan per table, of the functions of ``leaf_tests``. ``filter``
applies the plan to each update of a run, through the ``view`` that filters share. ``capabilities`` decides what a kind
of source can evaluate. ``projection`` determines which columns of the selected updates are sent, and in which form.
"""

from __future__ import annotations

from wormhole.filters.filter import Filter, Selection, explain
from wormhole.filters.projection import MaskKey, Projection
from wormhole.filters.view import RunView

__all__ = ["Filter", "MaskKey", "Projection", "RunView", "Selection", "explain"]
