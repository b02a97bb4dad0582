"""What the files of a store beside its log state."""

from __future__ import annotations

import struct

import google_crc32c
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.rocksdb.decode.manifest import ManifestDecoder, VersionEdit
from datastores.rocksdb.decode.options import parse_options
from wormhole.model.errors import DecodeError

# --- manifest ---


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def string(value: bytes) -> bytes:
    return varint(len(value)) + value


def fragment(kind: int, payload: bytes) -> bytes:
    crc = int(google_crc32c.value(bytes([kind]) + payload))
    masked = (((crc >> 15) | (crc << 17)) + 0xA282EAD8) & 0xFFFFFFFF
    return struct.pack("<IHB", masked, len(payload), kind) + payload


ADDED = varint(200) + varint(7) + varint(201) + string(b"users") + varint(1) + string(b"leveldb.BytewiseComparator")
FILE = varint(103) + varint(0) + varint(11) + varint(1058) + string(b"a" * 9) + string(b"b" * 9) + varint(1) + varint(2)
FILE += varint(5) + string(b"\x01") + varint(1)


def decode(*records: bytes) -> list[VersionEdit]:
    return ManifestDecoder().feed(b"".join(records))


def test_families_files_and_ids() -> None:
    edits = decode(
        fragment(1, varint(8193) + string(b"the-id")),
        fragment(1, ADDED),
        fragment(1, FILE + varint(2) + varint(12) + varint(4) + varint(99)),
        fragment(1, varint(200) + varint(7) + varint(202)),
    )
    assert edits == [
        VersionEdit(db_id="the-id"),
        VersionEdit(family=7, added="users", comparator="leveldb.BytewiseComparator"),
        VersionEdit(log_number=12, last_sequence=99, new_files=[11]),
        VersionEdit(family=7, dropped=True),
    ]


def test_tags_of_the_future_are_passed_over_where_they_say_so() -> None:
    assert decode(fragment(1, varint(9999) + string(b"?") + ADDED))[0].added == "users"
    with pytest.raises(DecodeError, match="tag 99 is unknown"):
        decode(fragment(1, varint(99)))


def test_blob_files_and_every_older_form() -> None:
    blob = varint(400) + varint(1) * 3 + string(b"m") + string(b"v") + varint(3) + string(b"x") + varint(0)
    garbage = varint(401) + varint(1) * 3 + varint(0)
    old = (
        varint(7) + varint(1) * 3 + string(b"a") * 2 + varint(6) + varint(1) * 2 + varint(5) + varint(1) + string(b"k")
    )
    assert decode(fragment(1, blob + garbage + old + varint(300) + varint(2) + ADDED))[0].added == "users"


def test_the_tags_without_a_length_that_old_releases_wrote() -> None:
    blob = varint(8194) + varint(1) * 3 + string(b"m") + string(b"v") + varint(0) + varint(8195) + varint(1) * 3
    wal = varint(8196) + varint(12) + varint(2) + varint(70_000) + varint(1) + varint(8197) + varint(9_000)
    for edit in (blob + varint(0), wal, varint(8196) + varint(12) + varint(1)):
        assert decode(fragment(1, edit + ADDED))[0].added == "users"


def test_a_record_that_may_be_passed_over_is() -> None:
    assert decode(fragment(130, b"anything"), fragment(1, ADDED))[0].added == "users"
    with pytest.raises(DecodeError, match="kind 127 is unknown"):
        decode(fragment(127, b"anything"))


@given(st.integers(1, 200))
def test_grows_in_pieces_of_any_size(size: int) -> None:
    data = b"".join([fragment(1, ADDED), fragment(2, ADDED[:9]), fragment(3, ADDED[9:11]), fragment(4, ADDED[11:])])
    decoder = ManifestDecoder()
    edits = [edit for at in range(0, len(data), size) for edit in decoder.feed(data[at : at + size])]
    assert [edit.added for edit in edits] == ["users", "users"]


def test_a_record_may_cross_blocks() -> None:
    filler = fragment(1, varint(9999) + string(b"x" * 32000))
    padding = fragment(1, varint(9999) + string(b"y" * (32768 - len(filler) - 7 - 4 - 17)))
    block = filler + padding + fragment(2, ADDED[:6])
    assert 0 < 32768 - len(block) < 7, "the rest of the block is too short for a header"
    data = block.ljust(32768, b"\0") + fragment(4, ADDED[6:])
    assert ManifestDecoder().feed(data)[-1].added == "users"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (fragment(1, ADDED)[:-1] + b"\xff", "checksum"),
        (fragment(9, ADDED), "kind 9"),
        (fragment(4, ADDED), "none belongs"),
        (b"\1\1\1\1\xff\xff\1", "passes its block"),
        (fragment(1, varint(201) + varint(50)), "column family name has 50 bytes"),
        (fragment(1, b"\xff"), "tag is no number"),
    ],
)
def test_damage_is_one_error_with_its_place(data: bytes, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        decode(data)


@given(st.binary(max_size=300))
def test_any_bytes_give_edits_or_the_one_error(data: bytes) -> None:
    for payload in (data, fragment(1, data)):
        try:
            decode(payload)
        except DecodeError:
            pass


# --- options ---


TEXT = r"""
# a comment
[Version]
  rocksdb_version=9.8.4
  options_file_version=1.1
[DBOptions]
  recycle_log_file_num=2  # trailing
  wal_dir=/data/a\#b
  allow_2pc=true
  max_total_wal_size=many
[CFOptions "default"]
  comparator=leveldb.BytewiseComparator
[TableOptions/BlockBasedTable "default"]
  block_size=4096
[CFOptions "with \"quotes\""]
  merge_operator={id=x;}
"""


def test_reads_sections_escapes_and_comments() -> None:
    options = parse_options(TEXT)
    assert options.version == "9.8.4"
    assert options.number("recycle_log_file_num") == 2
    assert options.db["wal_dir"] == "/data/a#b"
    assert options.flag("allow_2pc")
    assert not options.flag("absent")
    assert options.number("absent") == 0
    assert list(options.families) == ["default", 'with "quotes"']
    assert options.families['with "quotes"'] == {"merge_operator": "{id=x;}"}


def test_a_number_that_is_none_names_the_option() -> None:
    with pytest.raises(DecodeError, match="max_total_wal_size"):
        parse_options(TEXT).number("max_total_wal_size")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a=b", "line 1 is no name=value within"),
        ("[Version]\nrocksdb_version", "line 2 is no name=value"),
        ("[Version", "line 1 is no section header"),
        ("[DBOptions]\na=b", "rocksdb_version is missing"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, words: str) -> None:
    with pytest.raises(DecodeError, match=words):
        parse_options(text)


@given(st.text(alphabet=st.sampled_from('[]"=\\#\n aVersionrocksdb_1'), max_size=200))
def test_any_text_gives_options_or_the_one_error(text: str) -> None:
    try:
        parse_options(text)
    except DecodeError:
        pass
