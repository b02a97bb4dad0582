from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datastores.rocksdb.decode.options import parse_options
from wormhole.model.errors import DecodeError

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
