"""Text of peers that is searched for secrets, in logs, reports and dumps: its length alone decides how long that takes.

Each text makes one repetition of one pattern begin at every place and end at none. A process of its own has so many
seconds of processor time; what grows with the square of the length takes minutes.
"""

from __future__ import annotations

import resource
import subprocess
import sys

from scripts.prepare import ROOT

_CPU_S = 45
_BYTES = 220_000
_TEXTS = [
    "a.",
    "a+a-a.a://",
    "://a:",
    "a:,",
    " a:",
    "bearer ",
    "identified ",
    "identified by '",
    "identified by '\\",
    "password",
    "password ",
    "password='",
    'password=\\"',
    "password=\\\\",
    "password('",
    "secret secret\t",
    "-----BEGIN PRIVATE KEY-----",
    "-----BEGIN A PRIVATE KEY ",
    "mysql -",
    "curl ",
    "eyJabcdef-",
    "eyJabcdef.",
    "YII+",
    "xoxb-",
    "cookie",
    "cookie: ",
    "pass phrase",
    "secret_key_",
    "password%3D",
    "password%20",
    "%3A%2F%2F",
    "%3A%2F%2Fa%3A",
]
_PROGRAM = f"""
import sys
from wormholectl.doctor.redact import Redactor
from wormhole.config.passwords import without_password
from wormhole.host.logs import _redacted
redactor = Redactor()
for text in {_TEXTS!r}:
    for whole in (text * ({_BYTES} // len(text)), text + " " * {_BYTES}):
        for search in (redactor.text, _redacted, without_password):
            print(repr(text), search.__name__, len(search(whole)), flush=True)
"""


def _bounded() -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (_CPU_S, _CPU_S))


def test_time_grows_with_the_length_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=_bounded
    )
    last = done.stdout.splitlines()[-1:]
    assert done.returncode == 0, f"stopped behind {last}: {done.stderr[-500:]}"
    assert len(done.stdout.splitlines()) == len(_TEXTS) * 6
