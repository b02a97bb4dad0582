"""What the reader asks of its surroundings is what the source gives it: mypy compares the assignments below."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING

import pytest

from datastores.rocksdb.history.catalogue import FamilyCatalogue
from datastores.rocksdb.history.time_index import TimeIndex
from datastores.rocksdb.history.wal_files import WalHistory
from datastores.rocksdb.log import port

if TYPE_CHECKING:
    FILES: type[port.WalFiles] = WalHistory
    CATALOGUE: type[port.Catalogue] = FamilyCatalogue
    TIMES: type[port.CommitTimes] = TimeIndex


@pytest.mark.parametrize(
    ("protocol", "form"),
    [(port.WalFiles, WalHistory), (port.Catalogue, FamilyCatalogue), (port.CommitTimes, TimeIndex)],
)
def test_each_form_takes_what_its_port_promises(protocol: type, form: type) -> None:
    promised = [name for name, member in vars(protocol).items() if inspect.isfunction(member) and name[0] != "_"]
    assert promised
    for name in promised:
        expected = list(inspect.signature(getattr(protocol, name)).parameters)
        assert list(inspect.signature(getattr(form, name)).parameters) == expected
