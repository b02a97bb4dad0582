"""The loops of the archive: both forms say the same."""

from __future__ import annotations

from array import array

import hypothesis.strategies as st
from hypothesis import given, settings

from tests.support.hot import compiled, forms, interpreted
from wormhole.wire.rows import entry

NAME = "spark_replay.archive.kernel"
FORMS = [interpreted(NAME), *([compiled(NAME)] if "compiled" in forms() else [])]


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.data())
@settings(deadline=None)
def test_framed_is_what_a_body_holds(updates: list[bytes], data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(updates) - 1))
    stop = data.draw(st.integers(begin, len(updates)))
    ends = array("i", [sum(map(len, updates[:i])) for i in range(len(updates) + 1)])
    for form in FORMS:
        blob, found = form.framed(memoryview(b"".join(updates)), ends, begin, stop)
        assert blob == b"".join(map(entry, updates[begin:stop]))
        assert list(found) == [sum(len(entry(one)) for one in updates[begin : i + 1]) for i in range(begin, stop)]
