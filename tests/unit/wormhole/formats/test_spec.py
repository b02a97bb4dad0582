from __future__ import annotations

from pathlib import Path

import pytest

from wormhole.config import DatasetConfig, dataset_from_json, to_json
from wormhole.formats import FormatSpec

ORDER = {"protobuf": {"descriptor_set": "shop.desc", "message": "shop.v1.Order"}}


@pytest.mark.parametrize("given", ["json", "msgpack", "bytes", ORDER, {"ttl": "json"}, {"ttl": ORDER}])
def test_what_was_read_is_written_alike(given: object) -> None:
    spec = FormatSpec.read(given)
    assert FormatSpec.read(spec.plain()) == spec == FormatSpec.read(spec)


def test_a_relative_path_starts_where_the_file_is() -> None:
    spec = FormatSpec.read(ORDER, Path("/etc/wormhole"))
    assert spec.descriptor_set == Path("/etc/wormhole/shop.desc")
    assert str(spec) == "protobuf shop.v1.Order"
    assert str(FormatSpec.read("json")) == "json"


def test_one_word_names_values_of_a_ttl_db() -> None:
    assert FormatSpec.from_text("ttl:msgpack") == FormatSpec("msgpack", ttl=True)
    spec = FormatSpec.from_text("ttl:protobuf:shop.desc:shop.v1.Order")
    assert (spec.kind, spec.descriptor_set, spec.message, spec.ttl) == (
        "protobuf",
        Path("shop.desc"),
        "shop.v1.Order",
        True,
    )
    for text in ("ttl:bytes", "ttl:ttl:json", "ttl:", "ttl"):
        with pytest.raises(ValueError, match="must be"):
            FormatSpec.from_text(text)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("yaml", 'must be "json"'),
        (None, 'must be "json"'),
        ({}, 'must be "json"'),
        ({"protobuf": "x"}, 'must be "json"'),
        ({"ttl": "bytes"}, 'must be "json"'),
        ({"ttl": {"ttl": "json"}}, 'must be "json"'),
        ({"ttl": "json", **ORDER}, 'must be "json"'),
        ({"protobuf": {"message": "x"}}, 'must be "json"'),
        ({**ORDER, "json": True}, 'must be "json"'),
        ({"protobuf": {"descriptor_set": "", "message": "x"}}, "path of a file"),
        ({"protobuf": {"descriptor_set": "a\0b", "message": "x"}}, "path of a file"),
        ({"protobuf": {"descriptor_set": "x", "message": ""}}, "full name"),
    ],
)
def test_what_is_no_format(given: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FormatSpec.read(given)


def test_a_dataset_keeps_its_formats_through_json() -> None:
    copies = {"main": {"logs": {"db1": {"source": "rocksdb:///x"}}}}
    values = {"users": "json", "orders": ORDER, "raw": "bytes"}
    dataset = DatasetConfig.model_validate(
        {"name": "shop", "copies": copies, "value_format": "msgpack", "values": values},
        context={"folder": Path("/etc")},
    )
    assert dataset.value_format == FormatSpec("msgpack")
    assert dataset.values["orders"].descriptor_set == Path("/etc/shop.desc")
    assert dataset_from_json("shop", to_json(dataset), "node") == dataset
