"""The URL of an HDFS."""

from __future__ import annotations

import pytest

from datastores.hdfs.url import Address


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("hdfs://nn1", Address("", ("nn1:8020",))),
        ("hdfs://hdfs@nn1:9000/", Address("hdfs", ("nn1:9000",))),
        ("hdfs://h%40s@nn1:8020,nn2/", Address("h@s", ("nn1:8020", "nn2:8020"))),
        ("hdfs://nn1/?configuration=/etc/hadoop", Address("", ("nn1:8020",), "/etc/hadoop")),
        ("hdfs://nn1/?principal=p@R&keytab=/k", Address("", ("nn1:8020",), "", "p@R", "/k")),
    ],
)
def test_its_parts(url: str, address: Address) -> None:
    assert Address.parse(url) == address


@pytest.mark.parametrize(
    "url",
    [
        "hdfs:///",
        "hdfs://nn1:8020/folder",
        "hdfs://user:secret@nn1/",
        "hdfs://nn1:0/",
        "hdfs://nn1:port/",
        "hdfs://nn1,,nn2/",
        "hdfs://nn1/?slot=1",
        "hdfs://nn1/?configuration=etc",
        "hdfs://nn1/?principal=p",
        "hdfs://ann@nn1/?principal=p&keytab=/k",
        "hdfs://nn1/#part",
    ],
)
def test_what_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"must|has") as error:
        Address.parse(url)
    assert "secret" not in str(error.value)
