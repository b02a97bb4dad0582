"""Faults in what ZooKeeper's content may decide: where a token goes, and what of a host is read, dialled or written."""

from __future__ import annotations

from tests.mutants.runner import Fault

HOST_FAULTS: list[Fault] = [
    Fault(
        name="token-for-whoever-listens-at-the-socket",
        file="wormhole/host/local_admin.py",
        old="            if peer != owner:\n",
        new="            if False:\n",
        tests=("tests/unit/wormhole/host/test_local_admin.py",),
        promise="a token is given only to a process of the user who owns it",
    ),
    Fault(
        name="token-over-the-address",
        file="wormhole/admin/admin_service.py",
        old="                return _call(local, method, request, reply, metadata, _CHANGE_TIMEOUT_S)\n",
        new="                return _call(answer, method, request, reply, metadata, _CHANGE_TIMEOUT_S)\n",
        tests=("tests/unit/wormhole/admin/test_admin_service.py",),
        promise="a token never goes to an address that somebody named",
    ),
    Fault(
        name="page-of-a-monitor-anywhere",
        file="wormhole/coordination/rules.py",
        old='_PAGE: Final = re.compile(r"https?://([^/]+)/")\n',
        new='_PAGE: Final = re.compile(r"(?:https?://)?([^/]+)/?.*")\n',
        tests=("tests/unit/wormhole/coordination/test_records.py",),
        promise="a monitor's record names a status page and nothing else",
    ),
    Fault(
        name="source-of-the-record",
        file="wormhole/config/sources.py",
        old='        update={"datasets": published(datasets), "sources": sources, "publisher": publisher},\n',
        new='        update={"datasets": datasets, "sources": sources, "publisher": publisher},\n',
        tests=("tests/unit/wormhole/config/test_datastores.py",),
        promise="a host reads what its own file lists, whatever ZooKeeper says",
    ),
    Fault(
        name="descriptor-set-of-the-record",
        file="wormhole/config/sources.py",
        old="        if path not in allowed:\n",
        new="        if False:\n",
        tests=("tests/unit/wormhole/config/test_datastores.py",),
        promise="a host opens the descriptor sets that its own file names, and no others",
    ),
    Fault(
        name="archive-of-the-record",
        file="spark_replay/archive/choice.py",
        old='    if to.rstrip("/") not in {_place(one) for one in archives}:\n',
        new="    if False:\n",
        tests=("tests/unit/spark_replay/archive/test_choice.py",),
        promise="keys go to an archive, and a folder is written, only where the operator named it too",
    ),
    Fault(
        name="archive-within-what-was-named",
        file="spark_replay/archive/choice.py",
        old='    if to.rstrip("/") not in {_place(one) for one in archives}:\n',
        new="    if not to.startswith(tuple(_place(one) for one in archives)):\n",
        tests=("tests/unit/spark_replay/archive/test_choice.py",),
        promise="an option behind the URL that was named cannot send requests to another server",
    ),
    Fault(
        name="retention-of-the-record",
        file="spark_replay/commands/archive.py",
        old="    if chosen.stored and settings.keep is not None:\n",
        new="    if False:\n",
        tests=("tests/hostile/test_zookeeper_content.py",),
        promise="what of an archive is deleted for ever is said by a file of the operator's",
    ),
    Fault(
        name="address-of-any-kind",
        file="wormhole/coordination/records.py",
        old="_Address = Annotated[Host, AfterValidator(check_address)]\n",
        new="_Address = Host\n",
        tests=("tests/hostile/test_zookeeper_content.py",),
        promise="a record cannot have a process dial the socket of another service",
    ),
    Fault(
        name="children-without-a-bound",
        file="wormhole/coordination/nodes.py",
        old="            return sorted(names)[:MOST_CHILDREN]\n",
        new="            return sorted(names)\n",
        tests=("tests/hostile/test_zookeeper_content.py",),
        promise="nodes that somebody makes up in masses cost a bounded part of memory",
    ),
]
