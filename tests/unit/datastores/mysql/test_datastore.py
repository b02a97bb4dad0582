from __future__ import annotations

from pathlib import Path

import pytest

from datastores.mysql.datastore import DATASTORE
from wormhole.model.position import LogPosition
from wormhole.ports.datastore import Login


@pytest.mark.parametrize("scheme", ["mysql", "mariadb"])
def test_its_urls(scheme: str) -> None:
    assert DATASTORE.form(scheme) == f"{scheme}://user@host:3306"
    DATASTORE.check_url(f"{scheme}://h")
    with pytest.raises(ValueError, match=f"must name the account: {scheme}://user@host:3306"):
        DATASTORE.check_url(f"{scheme}://h", configured=True)


def test_a_place_is_written_as_the_server_does_and_read_back() -> None:
    native = DATASTORE.native_place(LogPosition(1, 1_000_003, 1892), "db.log-bin")
    assert native == "db.log-bin.1000003:1892"
    assert DATASTORE.is_place(native)
    assert DATASTORE.native_place(LogPosition(1, 3, 1892), "") == "", "what the files are called is not known yet"


def test_a_configuration_gets_what_the_users_files_add_and_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".my.cnf").write_text("[client]\nuser = reader\npassword = secret\nssl-ca = /ca.pem\n")
    login = Login(user_files=True)
    assert DATASTORE.configured_url("mysql://db1", login) == "mysql://reader@db1:3306/?ca=/ca.pem&tls=verify-ca"
    assert DATASTORE.configured_url("mysql://u:pw@[::1]:1", Login()) == "mysql://u@[::1]:1"


@pytest.mark.parametrize(
    ("url", "lines"),
    [("mysql://u@db1", 2), ("mysql://u@localhost", 0), ("mysql://u@db1/?tls=verify", 0), ("mysql://u@h/?socket=/s", 0)],
)
def test_how_to_verify_a_server_on_another_host(url: str, lines: int) -> None:
    assert len(DATASTORE.url_comments(url)) == lines
