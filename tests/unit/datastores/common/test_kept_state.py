"""Documents in which a source keeps what it knows: in ZooKeeper others can write them."""

from __future__ import annotations

from typing import Any

import pytest

from datastores.mysql.history.incarnations import Incarnations as MySqlIncarnations
from datastores.postgres.history.incarnations import Incarnations as PostgresIncarnations
from datastores.postgres.tables.publication import DOCUMENT, Publication
from tests.support.hosts_state import HostsState
from wormhole.model.errors import SourceUnavailable
from wormhole.ports.source_state import HISTORIES


@pytest.mark.parametrize("incarnations", [5, "x", {}, [5], [{}], [{"number": "1", "server": "a", "timeline": 1}], None])
@pytest.mark.parametrize("kind", [MySqlIncarnations, PostgresIncarnations])
def test_histories_that_no_source_wrote_are_named(kind: type, incarnations: Any) -> None:
    state = HostsState()
    state.write(HISTORIES, {"incarnations": incarnations})
    with pytest.raises(SourceUnavailable, match="holds nothing that a publisher wrote") as caught:
        kind(state)
    assert "restore it from a backup, or delete it" in str(caught.value.hint)


@pytest.mark.parametrize("document", [{"oid": "7"}, {"since": None}, {"until": 1.5}, {"oid": True}])
def test_a_publication_that_no_source_wrote_is_named(document: dict[str, Any]) -> None:
    state = HostsState()
    state.write(DOCUMENT, document)
    with pytest.raises(SourceUnavailable, match=r"publication\.json in .* holds nothing that a publisher wrote"):
        Publication(state)
