"""Mutual TLS end to end: publisher to subscriber, and the name that a certificate must carry."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from tests.support.certificates import Authority
from tests.system.harness.ensemble import Application, Ensemble, Plan
from wormhole.config import TlsFiles

Running = Callable[[Plan], AbstractContextManager[Ensemble]]


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "certificates")


def files(tls: TlsFiles) -> str:
    """The files as the subscriber's option lists them."""
    return f"{tls.cert},{tls.key},{tls.ca}"


def publisher(tls: TlsFiles) -> str:
    """The part of the publisher's configuration that lists the files."""
    return f'[tls]\ncert = "{tls.cert}"\nkey = "{tls.key}"\nca = "{tls.ca}"'


def committing(ensemble: Ensemble) -> None:
    ensemble.tell("fill 200 100")


def test_without_the_right_names_nothing_arrives_and_both_sides_say_so(
    running: Running, authority: Authority, tmp_path: Path
) -> None:
    """Only one of four subscribers presents its own certificate to a publisher that it lists."""
    strange = Authority(tmp_path / "strange", "strange-ca")
    options = {
        "app-1": {"tls": files(authority.issue("app-1")), "publishers": ["publisher"]},
        "renamed-1": {"tls": files(authority.issue("somebody-else")), "publishers": ["publisher"]},
        "unlisted-1": {"tls": files(authority.issue("unlisted-1")), "publishers": ["another-publisher"]},
        "strange-1": {"tls": files(strange.issue("strange-1")), "publishers": ["publisher"]},
    }
    applications = {name.removesuffix("-1"): Application({name: {"options": own}}) for name, own in options.items()}
    refused = ("renamed", "unlisted", "strange")
    with running(Plan(applications, top=publisher(authority.issue("publisher")), zookeeper=False)) as ensemble:
        committing(ensemble)
        output = {name: member.output for name, member in ensemble.members.items()}
        says(ensemble, ensemble.publisher.output, "has the names somebody-else, localhost, 127.0.0.1, not 'renamed-1'")
        says(ensemble, ensemble.publisher.output, "may not push here")
        says(ensemble, ensemble.publisher.output, "publishers")
        says(ensemble, output["unlisted-1"], "may not push here")
        says(ensemble, ensemble.publisher.output, "is issued by CN=strange-ca, and is not accepted")
        ensemble.await_all(["app"])
        for name in refused:
            assert ensemble.entries(f"{name}-1") == []
            assert not any(" assigned " in line for line in output[f"{name}-1"].read_text().splitlines())
        for name in refused:
            ensemble.members[f"{name}-1"].kill()
            again(ensemble, f"{name}-1", {"tls": files(authority.issue(f"{name}-1")), "publishers": ["publisher"]})
        ensemble.await_all()
        ensemble.check_state()


def test_updates_arrive_over_mutual_tls_also_after_certificates_are_replaced(
    running: Running, authority: Authority, tmp_path: Path
) -> None:
    """Both sides move to another authority; only the subscriber is started again."""
    theirs = authority.issue("app-1")
    options = {"tls": files(theirs), "publishers": ["publisher"]}
    application = {"app": Application({"app-1": {"options": options}})}
    with running(Plan(application, top=publisher(authority.issue("publisher")), zookeeper=False)) as ensemble:
        committing(ensemble)
        ensemble.await_all()
        other = Authority(tmp_path / "other", "other-ca")
        published = TlsFiles(
            cert=theirs.cert.with_name("publisher.crt"), key=theirs.key.with_name("publisher.key"), ca=theirs.ca
        )
        for old, new in ((published, other.issue("publisher")), (theirs, other.issue("app-1"))):
            for name in ("cert", "key", "ca"):
                getattr(old, name).write_bytes(getattr(new, name).read_bytes())
        ensemble.members["app-1"].kill()
        again(ensemble, "app-1", options)
        committing(ensemble)
        ensemble.await_all()
        ensemble.check_state()


def says(ensemble: Ensemble, output: Path, text: str) -> None:
    """Wait until a process says it."""
    ensemble.await_true(lambda: text in output.read_text(), f"{output.name} does not say {text!r}")


def again(ensemble: Ensemble, name: str, options: dict[str, Any]) -> None:
    """Start the subscriber again with these options."""
    where = {"id": name, "listen": f"127.0.0.1:{ensemble.ports[name]}", "coordinator": str(ensemble.config)}
    ensemble.start_subscriber(name, options={**options, **where})
