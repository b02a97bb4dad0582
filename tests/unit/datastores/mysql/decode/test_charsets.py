from __future__ import annotations

import pytest

from datastores.mysql.decode.charsets import ERRORS, charset_name_of, codec_of
from tests.support.given import given


@pytest.mark.parametrize(
    ("collation", "charset"),
    [
        (8, "latin1"),
        (28, "gbk"),
        (33, "utf8mb3"),
        (45, "utf8mb4"),
        (63, "binary"),
        (255, "utf8mb4"),
        (309, "utf8mb4"),
        (151, "ucs2"),
        (159, "ucs2"),
        (101, "utf16"),
        (183, "utf32"),
        (215, "utf8mb3"),
        (608, "utf8mb4"),
        (1024 + 28, "gbk"),
        (2048, "utf8mb3"),
        (2304, "utf8mb4"),
        (2560, "ucs2"),
        (3071, "utf16"),
        (3072, "utf32"),
        (3328, ""),
        (17, ""),
        (0, ""),
    ],
)
def test_collations_have_the_charset_of_their_number(collation: int, charset: str) -> None:
    assert charset_name_of(collation) == charset


@pytest.mark.parametrize(
    ("collation", "raw", "text"),
    [
        (8, bytes(range(256)), bytes(range(128)).decode() + "€\x81‚ƒ„…†‡ˆ‰Š‹Œ\x8dŽ\x8f\x90‘’“”•–—˜™š›œ\x9džŸ" + "".join(map(chr, range(160, 256)))),  # noqa: E501
        (45, "größe 😀".encode(), "größe 😀"),
        (28, b"\xd6\xd0\xce\xc4", "中文"),
        (1, b"\xa4\xa4\xf9\xd6", "中碁"),
        (19, b"\xc7\xd1\x81\x41", "한갂"),
        (13, b"\x82\xa0\x81\x5f\xb1", "あ\\ｱ"),
        (12, b"\xa4\xa2\xa1\xc0\xf5\xa1\x8f\xf5\xa1", "あ\\\ue000\ue3ac"),
        (95, b"\x87\x40\xfa\x40", "①ⅰ"),
        (248, b"\x81\x30\x81\x30\xa8\xbc\x81\x35\xf4\x37", "\x80ḿ\ue7c7"),
        (35, b"\x4e\x2d", "中"),
        (54, b"\xd8\x3d\xde\x00", "😀"),
        (56, b"\x3d\xd8\x00\xde", "😀"),
        (60, b"\x00\x01\xf6\x00", "😀"),
        (36, b"\x80\xfc\xfd", "Аⁿ²"),
        (25, b"\xa1\xe1", "ʽα"),
        (16, b"\xaf\xe0", "‾א"),
        (22, b"\x95\xc1", "•а"),
        (18, b"\xa1\xdb", "ก\ufffd"),
        (3, b"\xa1\xa8\xd7\xa4", "¡¤Œ?"),
        (10, b"[\\]{|}~@", "ÄÖÅäöåüÉ"),
        (32, b"\xa2\xb2", "§\u0531"),
        (37, b"\x80\xa0", "Čá"),
        (92, b"\xc0\xc1", "აბ"),
        (97, b"a\xa4\xa2\x8e\xb1\x8f\xf3\xf3\x8f\xa2\xb7\xf5\xa1\x8f\xf5\xa1\xa4", "aあｱⅰ～\ue000\ue3ac?"),
        (57, b"\x8a", "?"),
        (25, b"\xa4", "?"),
    ],
)  # fmt: skip
def test_text_is_what_select_shows(collation: int, raw: bytes, text: str) -> None:
    codec = given(codec_of(collation))
    assert raw.decode(codec, ERRORS) == text


@pytest.mark.parametrize(
    ("collation", "raw", "text"),
    [
        (28, b"a\xa1\x40b", "a?b"),
        (28, b"a\xa1", "a?"),
        (1, b"\xf9\xfe\xa3\xe0z", "▓?z"),
        (12, b"\x8f\xa1\xa1z\xa9\xa1z", "?z?z"),
        (65, b"a\xffb", "a?b"),
        (26, b"\x81", "?"),
        (45, b"a\xf0\x9f\x98", "a?"),
        (54, b"\xd8\x3d", "?"),
    ],
)
def test_what_is_no_character_becomes_a_question_mark(collation: int, raw: bytes, text: str) -> None:
    codec = given(codec_of(collation))
    assert raw.decode(codec, ERRORS) == text


@pytest.mark.parametrize("collation", [63, 0, 9999])
def test_what_has_no_codec_stays_bytes(collation: int) -> None:
    assert codec_of(collation) is None


def test_the_codecs_only_decode() -> None:
    with pytest.raises(NotImplementedError):
        "text".encode("mysql-latin1")
    with pytest.raises(UnicodeEncodeError):
        "é".encode("ascii", ERRORS)
    with pytest.raises(LookupError):
        b"x".decode("mysql-other")
