"""Faults in what is done with text, files and connections of somebody else; :mod:`tests.mutants.faults` lists them
with the others."""

from __future__ import annotations

from tests.mutants.runner import Fault

__all__ = ["TRUST_FAULTS"]

TRUST_FAULTS: list[Fault] = [
    Fault(
        name="planted-data-folder",
        file="wormhole/coordination/up_data_folder.py",
        old="        owner = path.lstat().st_uid",
        new="        owner = path.stat().st_uid",
        tests=("tests/hostile/test_planted_data_folder.py",),
        promise="a data folder that another user put beside the file, a link included, is not used",
    ),
    Fault(
        name="stranger-at-the-port-of-a-subscriber",
        file="wormhole/push/connection.py",
        old="        if peer.trust is None:\n            await asyncio.to_thread(check_user, peer)\n",
        new="",
        tests=("tests/hostile/test_port_of_a_subscriber.py",),
        promise="without TLS another user's process at a subscriber's port gets no update",
    ),
    Fault(
        name="only-listeners-have-a-user",
        file="wormhole/host/socket_table.py",
        old="    return frozenset(row.uid for row in _sockets(port) if row.held and row.local[0] in places)",
        new="    return frozenset(row.uid for row in _sockets(port) if row.listens and row.local[0] in places)",
        tests=("tests/unit/wormhole/host/test_socket_table.py",),
        promise="who accepted a connection and stopped listening is seen too",
    ),
    Fault(
        name="json-infinite-numbers-pass",
        file="wormhole/model/json_input.py",
        old="    if not math.isfinite(number):",
        new="    if math.isnan(number):",
        tests=("tests/unit/wormhole/model/test_json_input.py",),
        promise="a record that others write holds no number that fails where it is used",
    ),
    Fault(
        name="json-nesting-not-translated",
        file="wormhole/model/json_input.py",
        old="    except RecursionError:",
        new="    except MemoryError:",
        tests=("tests/unit/wormhole/model/test_json_input.py",),
        promise="a record that is nested deeply is refused like any other nonsense",
    ),
    Fault(
        name="toml-numbers-without-a-bound",
        file="wormhole/config/toml_input.py",
        old="    if isinstance(one, int) and one not in _INTEGERS:",
        new="    if isinstance(one, str) and one == _INTEGERS:",
        tests=("tests/unit/wormhole/config/test_toml_input.py",),
        promise="a number of thousands of digits in a configuration is one message",
    ),
    Fault(
        name="http-no-places-kept-for-health",
        file="wormhole/host/http_connections.py",
        old="        if self._busy >= self._busy_most:",
        new="        if self._busy > self.most:",
        tests=("tests/hostile/test_http_client.py",),
        promise="requests that take long keep no health check out",
    ),
    Fault(
        name="http-requests-without-a-bound",
        file="wormhole/host/http_connections.py",
        old="        if self._room < 0:",
        new="        if self._room < -(1 << 40):",
        tests=("tests/hostile/test_http_client.py",),
        promise="a client that sends without an end while it is answered loses its connection",
    ),
    Fault(
        name="http-unread-answers-without-a-bound",
        file="wormhole/host/http_connections.py",
        old="            if held <= _UNSENT_BYTES:",
        new="            if held <= _UNSENT_BYTES << 10:",
        tests=("tests/hostile/test_http_client.py",),
        promise="answers that nobody reads hold little memory",
    ),
    Fault(
        name="terminal-c1-controls-pass",
        file="wormhole/model/visible.py",
        old="\\x7f-\\x9f",
        new="\\x7f",
        tests=("tests/hostile/test_terminal.py",),
        promise="nothing that controls a terminal is shown raw",
    ),
    Fault(
        name="shell-completes-anything",
        file="wormholectl/complete.py",
        old="    return [name for name in names if _PLAIN.fullmatch(name)]",
        new="    return [name for name in names if _PLAIN.match(name)]",
        tests=("tests/hostile/test_terminal.py",),
        promise="a shell is offered no name that it would read as a command",
    ),
    Fault(
        name="files-links-of-others-followed",
        file="wormhole/host/private_files.py",
        old="flags | os.O_NOFOLLOW | os.O_CLOEXEC",
        new="flags | os.O_CLOEXEC",
        tests=("tests/hostile/test_files.py",),
        promise="a link in a publisher's folder leads root to no other file",
    ),
    Fault(
        name="files-of-a-publisher-open-to-others",
        file="publisher/daemon.py",
        old="    keep_private()\n",
        new="",
        tests=("tests/hostile/test_files.py",),
        promise="another user reads nothing of a publisher's state",
    ),
    Fault(
        name="redactor-quadratic-again",
        file="wormholectl/redact.py",
        old="{{0,200}}?\\b(?:by|as|using)",
        new="*?\\b(?:by|as|using)",
        tests=("tests/hostile/test_redaction.py",),
        promise="the time of redacting grows with the text's length alone",
    ),
    Fault(
        name="redactor-knows-no-signature-of-azure",
        file="wormholectl/redact.py",
        old="shared[_-]?access[_-]?signature|\\bsig)",
        new="shared[_-]?access[_-]?signature)",
        tests=("tests/unit/wormholectl/test_redact.py",),
        promise="the usual forms of secrets are redacted",
    ),
    Fault(
        name="archive-links-followed",
        file="spark_replay/archive/storage.py",
        old='    def delete(self, name: str) -> None:\n        """See :meth:`Storage.delete`."""\n        '
        "self._stay_inside(name)\n",
        new='    def delete(self, name: str) -> None:\n        """See :meth:`Storage.delete`."""\n',
        tests=("tests/hostile/test_archive_folder.py",),
        promise="a link in an archive has nothing deleted elsewhere",
    ),
]
