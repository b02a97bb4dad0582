"""What the demo needs of a datastore, on every kind: what was committed is what it holds in the end, whatever
happened on the way."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import pytest

from examples.demo.datastore import KINDS, Datastore, open_datastore, open_store
from examples.demo.journal import digest
from examples.demo.workload import transactions
from wormhole.model.errors import ConfigError


@pytest.fixture(params=list(KINDS))
def datastore(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Datastore]:
    found = open_datastore(request.param, tmp_path)
    try:
        found.start()
    except ConfigError as error:  # no such server here; in CI a skip is a failure
        pytest.skip(str(error))
    yield found
    found.close()


def test_it_holds_what_was_committed_after_every_chore(datastore: Datastore, request: pytest.FixtureRequest) -> None:
    assert datastore.source.startswith('source = "')
    assert datastore.told
    store = open_store(request.node.callspec.params["datastore"], datastore.place)
    due = sorted(((part, name) for name, parts in store.chores.items() for part in parts), reverse=True)
    chores = [name for _, name in due]  # the first one last
    expected: dict[tuple[str, str], str] = {}
    for number, changes in enumerate(islice(transactions(1), 200)):
        if number % 50 == 0 and chores:
            assert store.do(chores.pop())
        store.commit(changes)
        for change in changes:
            key = (change.table, change.key.decode())
            if change.value is None:
                del expected[key]
            else:
                expected[key] = digest(change.value)
    assert not chores
    store.close()
    datastore.close()
    assert datastore.content() == expected
    assert datastore.content() == expected  # `--check` asks once more
