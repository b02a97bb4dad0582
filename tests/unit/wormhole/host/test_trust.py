"""Files that are followed: by content, within bounds, and never worse than before.

The rest: tests/hostile/test_certificates.py."""

from __future__ import annotations

import os
import ssl
from pathlib import Path

import pytest

from tests.support.certificates import Authority
from wormhole.host.trust import Trust
from wormhole.model.errors import ConfigError


def test_content_counts_and_not_time_or_size(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("one")
    trust = Trust(tls, look_s=0)
    first = trust.current()
    before = tls.cert.stat()
    os.utime(tls.cert, (1, 1))
    assert trust.current() is first
    padded = Authority(tmp_path / "b").issue("one")
    for name in ("cert", "key", "ca"):
        getattr(tls, name).write_bytes(getattr(padded, name).read_bytes())
    os.utime(tls.cert, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert trust.current() is not first


def test_files_are_read_once_in_a_while(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("one")
    trust = Trust(tls, look_s=3600)
    first = trust.current()
    Authority(tmp_path / "b").issue("one")
    tls.cert.unlink()
    assert trust.current() is first
    assert trust.reloads.refused == 0


def test_a_file_without_end_is_not_read_to_its_end(tmp_path: Path) -> None:
    tls = Authority(tmp_path).issue("one")
    with pytest.raises(ConfigError, match=r'tls\.ca = "/dev/zero": is larger than 1 MiB'):
        Trust(tls.model_copy(update={"ca": Path("/dev/zero")}))
    with pytest.raises(ConfigError, match=r'tls\.crl = "/dev/zero": is larger than 16 MiB'):
        Trust(tls.model_copy(update={"crl": Path("/dev/zero")}))


def test_a_context_is_kept_until_the_files_change(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    tls = authority.issue("one")
    trust = Trust(tls, look_s=0)
    first = trust.context(ssl.PROTOCOL_TLS_CLIENT)
    assert trust.context(ssl.PROTOCOL_TLS_CLIENT) is first
    assert trust.context(ssl.PROTOCOL_TLS_CLIENT, ("h2",)) is not first
    authority.issue("one")
    assert trust.context(ssl.PROTOCOL_TLS_CLIENT) is not first


def test_a_start_with_an_expired_certificate_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    trust = Trust(Authority(tmp_path).issue("one", days=(-9, -2)))
    trust.warn()
    (record,) = caplog.records
    assert "tls.cert, CN=one" in record.getMessage()
    assert "expired on 20" in record.getMessage()
