"""Mutual TLS end to end: publisher to subscriber, the name a certificate must carry, and who is allowed."""

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
    """Of the subscriber's option."""
    return f"{tls.cert},{tls.key},{tls.ca}"


def publisher(tls: TlsFiles) -> str:
    """Of the publisher's configuration."""
    return f'[tls]\ncert = "{tls.cert}"\nkey = "{tls.key}"\nca = "{tls.ca}"'


def plan(authority: Authority, subscribers: dict[str, dict[str, Any] | None], **more: Any) -> Plan:
    application = Application(subscribers, settings=more.pop("settings", ""))
    return Plan({"app": application}, top=publisher(authority.issue("publisher")), **more)


def committing(ensemble: Ensemble) -> None:
    ensemble.tell("fill 200 100")


@pytest.mark.parametrize("zookeeper", [False, True], ids=["static", "zookeeper"])
def test_updates_travel_between_those_who_know_each_other(
    running: Running, authority: Authority, zookeeper: bool
) -> None:
    options = {"tls": files(authority.issue("app-1")), "publishers": ["publisher"]}
    with running(plan(authority, {"app-1": {"options": options}}, zookeeper=zookeeper)) as ensemble:
        committing(ensemble)
        ensemble.await_all()
        ensemble.check_state()


def test_a_certificate_of_another_name_is_refused_and_both_sides_say_so(running: Running, authority: Authority) -> None:
    """Whoever stands at the address of app-1 without its certificate receives nothing."""
    options = {"tls": files(authority.issue("somebody-else")), "publishers": ["publisher"]}
    with running(plan(authority, {"app-1": {"options": options}}, zookeeper=False)) as ensemble:
        committing(ensemble)
        says(ensemble, ensemble.publisher.output, "has the names somebody-else, localhost, 127.0.0.1, not 'app-1'")
        assert not any(
            " assigned " in line for line in ensemble.members["app-1"].process.output.read_text().splitlines()
        )
        assert ensemble.entries("app-1") == []
        ensemble.members["app-1"].process.kill()
        ensemble.start_subscriber("app-1", options={**options, "id": "app-1", "listen": listen(ensemble), "coordinator": str(ensemble.config), "tls": files(authority.issue("app-1"))})  # fmt: skip  # noqa: E501
        ensemble.await_all()


def test_a_publisher_that_is_not_listed_is_refused_and_both_sides_say_so(
    running: Running, authority: Authority
) -> None:
    options = {"tls": files(authority.issue("app-1")), "publishers": ["another-publisher"]}
    with running(plan(authority, {"app-1": {"options": options}}, zookeeper=False)) as ensemble:
        committing(ensemble)
        says(ensemble, ensemble.publisher.output, "may not push here")
        says(ensemble, ensemble.publisher.output, "publishers")
        says(ensemble, ensemble.members["app-1"].process.output, "may not push here")
        assert ensemble.entries("app-1") == []


def test_another_authority_is_refused(running: Running, authority: Authority, tmp_path: Path) -> None:
    strange = Authority(tmp_path / "strange", "strange-ca")
    options = {"tls": files(strange.issue("app-1")), "publishers": ["publisher"]}
    with running(plan(authority, {"app-1": {"options": options}}, zookeeper=False)) as ensemble:
        committing(ensemble)
        says(ensemble, ensemble.publisher.output, "is issued by CN=strange-ca, and is not accepted")
        assert ensemble.entries("app-1") == []


def test_a_subscriber_that_the_application_does_not_allow(running: Running, authority: Authority) -> None:
    allowed = {"options": {"tls": files(authority.issue("app-1")), "publishers": ["publisher"]}}
    subscribers: dict[str, dict[str, Any] | None] = {"app-1": allowed}
    with running(plan(authority, subscribers, settings='allow = ["app-1"]')) as ensemble:
        ensemble.add(
            "stranger", "app", {"options": {"tls": files(authority.issue("stranger")), "publishers": ["publisher"]}}
        )
        stranger = ensemble.members.pop("stranger").process
        assert stranger.wait() != 0
        said = stranger.output.read_text()
        assert "subscriber 'stranger' is not in the allow list of application app" in said
        assert "applications.app.allow" in said
        committing(ensemble)
        ensemble.await_all()


def test_a_running_publisher_uses_replaced_certificates(running: Running, authority: Authority, tmp_path: Path) -> None:
    """Both sides move to another authority; only the subscriber is started again."""
    theirs = authority.issue("app-1")
    options = {"tls": files(theirs), "publishers": ["publisher"]}
    with running(plan(authority, {"app-1": {"options": options}}, zookeeper=False)) as ensemble:
        committing(ensemble)
        ensemble.await_all()
        other = Authority(tmp_path / "other", "other-ca")
        published = TlsFiles(
            cert=theirs.cert.with_name("publisher.crt"), key=theirs.key.with_name("publisher.key"), ca=theirs.ca
        )
        for old, new in ((published, other.issue("publisher")), (theirs, other.issue("app-1"))):
            for name in ("cert", "key", "ca"):
                getattr(old, name).write_bytes(getattr(new, name).read_bytes())
        ensemble.members["app-1"].process.kill()
        ensemble.start_subscriber("app-1", options={**options, "id": "app-1", "listen": listen(ensemble), "coordinator": str(ensemble.config)})  # fmt: skip  # noqa: E501
        committing(ensemble)
        ensemble.await_all()


def says(ensemble: Ensemble, output: Path, text: str) -> None:
    """Wait until a process says it."""
    ensemble.await_true(lambda: text in output.read_text(), f"{output.name} does not say {text!r}")


def listen(ensemble: Ensemble) -> str:
    return f"127.0.0.1:{ensemble.ports['app-1']}"
