"""The files of ``[tls]``: certificate, key, authority and revocation list, broken as text and within their DER."""

from __future__ import annotations

import base64
import random
import tempfile
import warnings
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import ModuleType

from tests.fuzz.mutate import mutate
from tests.fuzz.target import Target
from tests.support.certificates import Authority

_BETWEEN = b"\0"


@cache
def _made() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        authority = Authority(Path(folder))
        tls = authority.issue("one")
        crl = authority.revoke(tls.cert)
        return _BETWEEN.join(path.read_bytes() for path in (tls.cert, tls.key, tls.ca, crl))


def _broken(rng: random.Random, data: bytes, other: bytes) -> bytes:
    """One of the four files; of its DER mostly, for a PEM whose text is broken goes no further than its text."""
    files = data.split(_BETWEEN)
    number = rng.randrange(len(files))
    head, *body, tail = files[number].strip().split(b"\n")
    if rng.random() < 0.2 or not body:
        files[number] = mutate(rng, files[number], other)
    else:
        der = mutate(rng, base64.b64decode(b"".join(body) + b"==="), b"\x30\x82\x01\x00")
        files[number] = b"\n".join((head, base64.encodebytes(der).strip(), tail, b""))
    return _BETWEEN.join(files)


def _trusted(module: ModuleType, data: bytes) -> object:
    parts = [*data.split(_BETWEEN), b"", b"", b""]
    now = datetime(2026, 1, 1, tzinfo=UTC)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the library's, of content that a later release of it will refuse
        found = module.Trusted(module.Pems(*parts[:4]))
        refused = [found.refusal(one, now) for one in (*found.chain, *found.authorities)]
        return found.faults(now), found.ends(), refused, [(str(one), one.names) for one in found.chain]


TARGETS = [
    Target("certificates", "wormhole.host.certificates", _trusted, lambda _rng: _made(), (ValueError,), mutate=_broken),
]
