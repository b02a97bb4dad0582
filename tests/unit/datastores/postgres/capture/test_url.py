"""The URL of a database whose changes triggers record."""

from __future__ import annotations

import pytest

from datastores.postgres.capture.datastore import DATASTORE
from datastores.postgres.capture.url import CaptureUrl


def test_the_parameters_of_the_server_stay() -> None:
    url = CaptureUrl.parse("postgresql+capture://u@h:5433/d?sslmode=require&schema=other")
    assert (url.server, url.schema) == ("postgresql://u@h:5433/d?sslmode=require", "other")
    assert url.with_server("postgresql://u@h/d") == "postgresql+capture://u@h/d?schema=other"
    assert CaptureUrl.parse("postgresql+capture://u@h/d").schema == "wormhole"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u@h/d",
        "postgresql+capture://u@h",
        "postgresql+capture://u@h/d?slot=x",
        "postgresql+capture://u@h/d?publication=x",
        "postgresql+capture://u@h/d?schema=Other",
        "postgresql+capture://u@h/d?schema=a&schema=b",
        "postgresql+capture://u:secret@h:x/d",
    ],
)
def test_another_url_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must") as error:
        DATASTORE.check_url(url)
    assert "secret" not in str(error.value)


def test_two_logs_of_one_schema_are_one_reservation() -> None:
    one, two = (f"postgresql+capture://{user}@localhost/d" for user in "ab")
    assert DATASTORE.reserved(one, "x") == DATASTORE.reserved(two, "y")
    assert DATASTORE.reserved(one, "x") != DATASTORE.reserved(f"{one}?schema=other", "x")
