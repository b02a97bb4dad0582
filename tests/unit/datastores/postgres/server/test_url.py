from __future__ import annotations

import pytest

from datastores.postgres.server.url import ServerUrl


def test_everything_that_a_url_may_say() -> None:
    url = ServerUrl.parse(
        "postgresql://a%40b:s%3Acret@[::1]:6432/my%20shop?sslmode=verify-full&sslrootcert=/ca.pem&sslcert=/c&sslkey=/k"
        "&publication=My%20Pub&slot=w1"
    )
    assert (url.kind, url.user, url.password, url.host, url.port, url.database) == (
        "postgresql", "a@b", "s:cret", "::1", 6432, "my shop",
    )  # fmt: skip
    assert (url.sslmode, url.sslrootcert, url.sslcert, url.sslkey) == ("verify-full", "/ca.pem", "/c", "/k")
    assert (url.publication, url.slot) == ("My Pub", "w1")
    assert "cret" not in repr(url)


@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("", None),
        ("?sslrootcert=/c", "verify-full"),
        ("?sslcert=/c&sslkey=/k", "require"),
        ("?sslmode=allow", "allow"),
    ],
)
def test_the_mode_that_the_files_mean(query: str, mode: str | None) -> None:
    assert ServerUrl.parse(f"postgres://u@h/d{query}").sslmode == mode


def test_a_socket() -> None:
    url = ServerUrl.parse("postgres://u@/d?host=/run/postgresql")
    assert (url.host, url.socket) == ("", "/run/postgresql")


@pytest.mark.parametrize(
    "text",
    [
        "postgres:u@h/d",
        "mysql://u@h/d",
        "postgres://u:secret@h",
        "postgres://u:secret@h/",
        "postgres://u:secret@h/a/b",
        "postgres://u:secret@h/d#x",
        "postgres://u:secret@h:port/d",
        "postgres://u:secret@h/d?host=/run",
        "postgres://u:secret@/d?host=run",
        "postgres://u:secret@h/d?sslmode=on",
        "postgres://u:secret@h/d?sslmode=require&sslrootcert=/ca",
        "postgres://u:secret@h/d?sslmode=verify-ca",
        "postgres://u:secret@h/d?sslcert=/c",
        "postgres://u:secret@h/d?sslmode=prefer&sslcert=/c&sslkey=/k",
        "postgres://u:secret@h/d?slot=Big",
        "postgres://u:secret@h/d?unverified_server=yes",
        "postgres://u:secret@h/d?unverified_server=may-read-password&sslmode=verify-full",
        "postgres://u:secret@h/d?slot=",
        "postgres://u:secret@h/d?slot=a&slot=b",
        "postgres://u:secret@h/d?secret=1",
        "postgres://u:secret@h/d?sslrootcert=ca.pem",
        f"postgres://u:secret@h/{'d' * 64}",
        f"postgres://u:secret@h/d?publication={'p' * 64}",
    ],
)
def test_what_is_refused_without_the_password(text: str) -> None:
    with pytest.raises(ValueError, match=r"must|may have|unknown option") as error:
        ServerUrl.parse(text)
    assert "secret" not in str(error.value)
