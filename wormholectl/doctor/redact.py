"""Removes secrets from text that leaves the host: secrets with known values, and text that looks like a secret."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import partial
from typing import Any, Final
from urllib.parse import quote, quote_plus

__all__ = ["Redactor"]

_GONE: Final = "[redacted]"
_SHORTEST: Final = 4
"""The fewest characters of a known secret to search for. Shorter values occur in ordinary words. They are found only
beside a name that means a secret."""

# A word that means a secret, and the characters that may follow it in a name. Names of files with secrets
# (password_file) are excluded.
_NAME: Final = (
    r"(?:(?:pass(?:[ _-]?(?:words?|wd|phrase|code|key))?|pwd|secrets?|tokens?|tickets?|credentials?|auth|"
    r"authorization|cookies?|"
    r"(?:api|private|access|account|shared|storage|signing|encryption|mask|master|session|scram[_-]client|"
    r"scram[_-]server)[_-]?(?:access[_-]?)?keys?|"
    r"sess(?:ion)?[_-]?ids?|\bsid|shared[_-]?access[_-]?signature|\bsig)(?:[_-](?!files?\b|paths?\b|folders?\b)[a-z0-9]{1,20}){0,4})"
)
# A letter within a word that is percent-encoded, perhaps several times.
_LETTER: Final = r"%(?:25){0,3}([46][1-9A-F]|[57][0-9A])"
_ENCODED: Final = re.compile(rf"(?i)(?<=[a-z]){_LETTER}|{_LETTER}(?=[a-z%=:])")
_QUOTED: Final = r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\""
# The time of a search must be linear in the length of the text. So each repetition is bounded, or ends where the next
# match can begin.
_PATTERNS: Final = (
    # A key in PEM. Its line breaks may be written as \n, and its end may be missing.
    (
        re.compile(
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
            r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
            re.DOTALL,
        ),
        _GONE,
    ),
    # Headers with several secrets, up to the end of the line or of the surrounding text.
    (re.compile(r"(?i)(\b(?:set-)?cookie\d?[\"']?\s{0,9}[:=]\s{0,9}[\"']?)([^\r\n\"']+)"), rf"\1{_GONE}"),
    # A header with several words and without quotes.
    (re.compile(r"(?i)(pass[ _-]?phrase[\"']?\s{0,9}[:=]\s{0,9})([^\r\n\"',;}]+)"), rf"\1{_GONE}"),
    # Percent-encoded names and values: name%3Dvalue, %22name%22%3A%22value%22, ://user:PASSWORD@host.
    (
        re.compile(
            rf"(?i)({_NAME}(?:%2[27])?(?:%20){{0,9}}(?:%(?:25){{0,3}}3[AD]|=)(?:%20){{0,9}}(?:%2[27])?)"
            r"((?:(?!%2[267]|%3B|%7D|%0[AD])[^\s&;,\"'<>]){1,4096})"
        ),
        rf"\1{_GONE}",
    ),
    (re.compile(r"(?i)(%3A%2F%2F[^\s/:@%]{0,200}(?:%3A|:))((?:(?!%40|%2F)[^\s@/]){1,400})(%40|@)"), rf"\1{_GONE}\3"),
    # scheme://user:PASSWORD@host. The last @ before a slash ends the password, because a password may contain @.
    (re.compile(r"(?<=://)([^\s/:@'\"]*):[^\s/'\"]+@"), rf"\1:{_GONE}@"),
    (
        re.compile(r"(?i)\b(bearer|basic|negotiate|digest|aws4-hmac-sha256)\s{1,9}[A-Za-z0-9._~+/=-]{4,}"),
        rf"\1 {_GONE}",
    ),
    (
        re.compile(
            rf"(?i)(\bidentified\b[^'\"\n]{{0,200}}?\b(?:by|as|using)\s{{0,9}}(?:password\s{{0,9}})?)({_QUOTED})"
        ),
        rf"\1{_GONE}",
    ),
    # SQL: PASSWORD('x') and PASSWORD 'x'.
    (re.compile(rf"(?i)(\bpassword(?:\s{{0,9}}\(\s{{0,9}}|\s{{1,9}}E?))({_QUOTED})"), rf"\1{_GONE}"),
    # name = value, name: value, "name": "value", ?name=value. Names of files with secrets (password_file) are excluded.
    (
        re.compile(
            rf"(?i)({_NAME}\\{{0,9}}[\"']?\s{{0,9}}(?:=>|[=:])\s{{0,9}})"
            # Quotes inside a JSON string have a backslash before them.
            r"(\\{1,9}\".*?\\{1,9}\"|\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'|[^\s,;&'\"\]})]+)"
        ),
        rf"\1{_GONE}",
    ),
    (re.compile(r"(?i)(--?p(?:assword|asswd)?[= ])(\S+)"), rf"\1{_GONE}"),
    # Commands: a database's client -pSECRET, sshpass -pSECRET, curl -u user:SECRET.
    (re.compile(r"((?:sql|db|sshpass)[^\n]{0,200}?\s-p)([^\s-]\S*)"), rf"\1{_GONE}"),
    (re.compile(r"(\bcurl\b[^\n]{0,200}?\s(?:-u|--user)[= ]?[^\s:]{1,100}:)(\S+)"), rf"\1{_GONE}"),
    # Secrets of well-known providers have recognizable forms.
    (re.compile(r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b"), _GONE),
    (
        re.compile(
            r"\bAIza[A-Za-z0-9_-]{35}|\bya29\.[A-Za-z0-9_-]{20,}|\bgh[pousr]_[A-Za-z0-9]{36,}|\bxox[abprs]-[A-Za-z0-9-]{10,}"
        ),
        _GONE,
    ),
    # A JWT, and a Kerberos ticket in an HTTP header.
    (re.compile(r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{5,}\.[A-Za-z0-9_-]+\.?[A-Za-z0-9_-]*"), _GONE),
    (re.compile(r"(?<![A-Za-z0-9+/])YII[A-Za-z0-9+/]{60,}={0,2}"), _GONE),
    # Text that is as long and as random as a token.
    (re.compile(r"\b[0-9a-f]{64}\b"), _GONE),
)


class Redactor:
    """See the module. ``secrets``: known secret values, for example contents of password files. Each line counts."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        lines = {line.strip() for secret in secrets for line in secret.splitlines()}
        known = {line for line in lines if len(line) >= _SHORTEST}
        encoded = {form(line) for line in known for form in (quote, quote_plus, partial(quote, safe=""))}
        # Longest first: a secret inside a longer one must not leave a part of the longer one.
        self._secrets = sorted(known | encoded, key=len, reverse=True)

    def text(self, text: str) -> str:
        """``text`` without secrets."""
        text = self._without_known(_decoded(self._without_known(text)))
        for pattern, instead in _PATTERNS:
            text = pattern.sub(instead, text)
        return text

    def _without_known(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, _GONE)
        return text

    def value(self, value: Any) -> Any:
        """Redact every text in a JSON value. The whole value of a key that names a secret is removed."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                name: _GONE
                if _IS_SECRET.fullmatch(_decoded(name)) and isinstance(one, str) and one
                else self.value(one)
                for name, one in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.value(one) for one in value]
        return value


def _decoded(text: str) -> str:
    """``text`` with percent-encoded letters decoded, because an encoded name is still a name."""
    return _ENCODED.sub(lambda found: chr(int(found[1] or found[2], 16)), text)


_IS_SECRET: Final = re.compile(rf"(?i)[\w.-]*{_NAME}")
