"""Tables of the character sets that Python lacks, from ``CONVERT(... USING utf8mb4)`` in MySQL and MariaDB.

U+FFFE: no character."""

from __future__ import annotations

from typing import Final

__all__ = ["EUCJPMS_EXTENSION", "UPPER_HALVES"]

UPPER_HALVES: Final = {
    "mysql-armscii8": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98"
        "\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0\u2741\xa7\u0589\x29\x28\xbb\xab\u2014\x2e\u055d\x2c\x2d\u055f\u2026"
        "\u055c\u055b\u055e\u0531\u0561\u0532\u0562\u0533\u0563\u0534\u0564\u0535\u0565\u0536\u0566\u0537"
        "\u0567\u0538\u0568\u0539\u0569\u053a\u056a\u053b\u056b\u053c\u056c\u053d\u056d\u053e\u056e\u053f"
        "\u056f\u0540\u0570\u0541\u0571\u0542\u0572\u0543\u0573\u0544\u0574\u0545\u0575\u0546\u0576\u0547"
        "\u0577\u0548\u0578\u0549\u0579\u054a\u057a\u054b\u057b\u054c\u057c\u054d\u057d\u054e\u057e\u054f"
        "\u057f\u0550\u0580\u0551\u0581\u0552\u0582\u0553\u0583\u0554\u0584\u0555\u0585\u0556\u0586\u2019\x27"
    ),
    "mysql-dec8": (
        "\x80\x81\x82\x83\x84\x85\x86\x87\x88\x89\x8a\x8b\x8c\x8d\x8e\x8f\x90\x91\x92\x93\x94\x95\x96\x97\x98"
        "\x99\x9a\x9b\x9c\x9d\x9e\x9f\xa0\xa1\xa2\xa3\ufffe\xa5\ufffe\xa7\xa4\xa9\xaa\xab\ufffe\ufffe\ufffe"
        "\ufffe\xb0\xb1\xb2\xb3\ufffe\xb5\xb6\xb7\ufffe\xb9\xba\xbb\xbc\xbd\ufffe\xbf\xc0\xc1\xc2\xc3\xc4\xc5"
        "\xc6\xc7\xc8\xc9\xca\xcb\xcc\xcd\xce\xcf\ufffe\xd1\xd2\xd3\xd4\xd5\xd6\u0152\xd8\xd9\xda\xdb\xdc"
        "\u0178\ufffe\xdf\xe0\xe1\xe2\xe3\xe4\xe5\xe6\xe7\xe8\xe9\xea\xeb\xec\xed\xee\xef\ufffe\xf1\xf2\xf3"
        "\xf4\xf5\xf6\u0153\xf8\xf9\xfa\xfb\xfc\xff\ufffe\ufffe"
    ),
    "mysql-geostd8": (
        "\u20ac\ufffe\u201a\ufffe\u201e\u2026\u2020\u2021\ufffe\u2030\ufffe\u2039\ufffe\ufffe\ufffe\ufffe"
        "\ufffe\u2018\u2019\u201c\u201d\u2022\u2013\u2014\ufffe\ufffe\ufffe\u203a\ufffe\ufffe\ufffe\ufffe\xa0"
        "\xa1\xa2\xa3\xa4\xa5\xa6\xa7\xa8\xa9\xaa\xab\xac\xad\xae\xaf\xb0\xb1\xb2\xb3\xb4\xb5\xb6\xb7\xb8\xb9"
        "\xba\xbb\xbc\xbd\xbe\xbf\u10d0\u10d1\u10d2\u10d3\u10d4\u10d5\u10d6\u10f1\u10d7\u10d8\u10d9\u10da"
        "\u10db\u10dc\u10f2\u10dd\u10de\u10df\u10e0\u10e1\u10e2\u10f3\u10e3\u10e4\u10e5\u10e6\u10e7\u10e8"
        "\u10e9\u10ea\u10eb\u10ec\u10ed\u10ee\u10f4\u10ef\u10f0\u10f5\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe"
        "\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe\ufffe"
        "\ufffe\u2116\ufffe\ufffe"
    ),
    "mysql-keybcs2": (
        "\u010c\xfc\xe9\u010f\xe4\u010e\u0164\u010d\u011b\u011a\u0139\xcd\u013e\u013a\xc4\xc1\xc9\u017e\u017d"
        "\xf4\xf6\xd3\u016f\xda\xfd\xd6\xdc\u0160\u013d\xdd\u0158\u0165\xe1\xed\xf3\xfa\u0148\u0147\u016e\xd4"
        "\u0161\u0159\u0155\u0154\xbc\xa1\xab\xbb\u2591\u2592\u2593\u2502\u2524\u2561\u2562\u2556\u2555\u2563"
        "\u2551\u2557\u255d\u255c\u255b\u2510\u2514\u2534\u252c\u251c\u2500\u253c\u255e\u255f\u255a\u2554"
        "\u2569\u2566\u2560\u2550\u256c\u2567\u2568\u2564\u2565\u2559\u2558\u2552\u2553\u256b\u256a\u2518"
        "\u250c\u2588\u2584\u258c\u2590\u2580\u03b1\xdf\u0393\u03c0\u03a3\u03c3\xb5\u03c4\u03a6\u0398\u03a9"
        "\u03b4\u221e\u03c6\u03b5\u2229\u2261\xb1\u2265\u2264\u2320\u2321\xf7\u2248\xb0\u2219\xb7\u221a\u207f"
        "\xb2\u25a0\xa0"
    ),
}
"""Characters of the bytes 0x80 to 0xFF. Lower bytes are ASCII."""

EUCJPMS_EXTENSION: Final = (
    "\u2170\u2171\u2172\u2173\u2174\u2175\u2176\u2177\u2178\u2179\u2160\u2161\u2162\u2163\u2164\u2165"
    "\u2166\u2167\u2168\u2169\uff07\uff02\u3231\u2116\u2121\u70bb\u4efc\u50f4\u51ec\u5307\u5324\ufa0e"
    "\u548a\u5759\ufa0f\ufa10\u589e\u5bec\u5cf5\u5d53\ufa11\u5fb7\u6085\u6120\u654e\u663b\u6665\ufa12"
    "\uf929\u6801\ufa13\ufa14\u6a6b\u6ae2\u6df8\u6df2\u7028\ufa15\ufa16\u7501\u7682\u769e\ufa17\u7930"
    "\ufa18\ufa19\ufa1a\ufa1b\u7ae7\ufa1c\ufa1d\u7da0\u7dd6\ufa1e\u8362\ufa1f\u85b0\ufa20\ufa21\u8807"
    "\ufa22\u8b7f\u8cf4\u8d76\ufa23\ufa24\ufa25\u90de\ufa26\u9115\ufa27\ufa28\u9592\uf9dc\ufa29\u973b"
    "\u974d\u9751\ufa2a\ufa2b\ufa2c\u999e\u9ad9\u9b72\ufa2d\u9ed1"
)
"""Characters of the byte sequences 0x8F 0xF3 0xF3 to 0x8F 0xF4 0xFE: IBM's extension."""
