"""A database server with its publisher, its archiver and two applications, each a process; with mutual TLS
everywhere if there is an authority."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from examples.demo.database_server import DatabaseServer
from spark_replay.archive.reader import open_file
from tests.support.archives import manifest_of
from tests.support.certificates import Authority
from tests.support.command_line import run
from tests.support.databases import purge
from tests.support.mirror import Mirror, differences, selected
from tests.support.ports import free_port
from tests.support.repeating import repeating
from tests.support.replay_stage import Stage
from tests.support.server_workload import DEFAULTS, Workload
from tests.system.harness.processes import Process
from wormhole.config import TlsFiles
from wormhole.model.position import LogPosition
from wormhole.wire.markers import marker_from_message
from wormholectl.shared.options import Where

APPLICATIONS = {"cache": "cache-1", "search": "search-1"}
SHARDS = ("db1.shop", "db1.stock")
_ID = ["tx_source", "tx_number", "tx_index"]
_ARCHIVER, _PUBLISHER, _ADMIN = "archive-1", "db1-publisher", "maria"


class ServerScene(Stage):
    """Shards are databases. ``image``: ``binlog_row_image``. With ``authority`` each process has a certificate with
    its name alone in it, as ``docs/tls.md`` makes them, and the command line that of an administrator."""

    def __init__(self, server: DatabaseServer, folder: Path, *, image: str, authority: Authority | None = None) -> None:
        super().__init__(folder)
        self.server = server
        self.workload = Workload(server, image)
        names = (*APPLICATIONS.values(), _ARCHIVER)
        tls = {name: authority.issue(name, hosts=False) for name in (*names, _PUBLISHER, _ADMIN)} if authority else {}
        ports = {name: free_port() for name in names}
        self._write_config(ports, tls.get(_PUBLISHER))
        self.where = Where(coordinator=str(self.config), tls=tls.get(_ADMIN), tls_name=_PUBLISHER if tls else "")
        self.options = ["-c", str(self.config)]
        if tls:
            mine = tls[_ADMIN]
            files = [f"--tls-cert={mine.cert}", f"--tls-key={mine.key}", f"--tls-ca={mine.ca}"]
            self.options += [*files, f"--tls-name={_PUBLISHER}"]
        self.publisher = self.wormholectl("publisher", "publisher", "run", "-c", str(self.config))
        environment = {"WORMHOLE_TLS": _option(tls[_ARCHIVER]), "WORMHOLE_PUBLISHERS": _PUBLISHER} if tls else {}
        self.archiver = self.wormholectl("archiver", "archive", "run", "-c", str(self.config), environment=environment)
        self.subscribers: dict[str, Process] = {}
        self.mirrors: dict[str, Mirror] = {}
        for application, name in APPLICATIONS.items():
            log = folder / f"{application}.log"
            options: dict[str, object] = {"id": name, "coordinator": str(self.config)}
            if tls:
                options |= {"tls": _option(tls[name]), "publishers": [_PUBLISHER, _ADMIN]}
            given = json.dumps({"application": application, "log": str(log), "options": options})
            self.subscribers[application] = Process(name, ["-m", "tests.support.mirrored_application", given], folder)
            self.mirrors[application] = Mirror(log)

    def _write_config(self, ports: dict[str, int], tls: TlsFiles | None) -> None:
        parts = ["version = 1", "[coordinator]", "static = true"]
        if tls is not None:
            parts += ["[tls]", f'cert = "{tls.cert}"', f'key = "{tls.key}"', f'ca = "{tls.ca}"']
        parts += [
            "[publisher]",
            f'state_dir = "{self.folder / "state"}"',
            f'admins = ["{_ADMIN}"]',
            'heartbeat = "500ms"\ngrace_period = "300ms"\nhandler_timeout = "5s"',
            "[datasets.shop]",
            'shard_by = "database"',
            "[datasets.shop.archive]",
            f'to = "{self.archive}"\nflush_every = "200ms"',
            "[datasets.shop.copies.main.logs.db1]",
            f'source = "{self.server.url}"\npassword_file = "{self.server.password_file}"',
        ]
        for application, name in {**APPLICATIONS, "archive": _ARCHIVER}.items():
            parts += [f'[applications.{application}]\ndataset = "shop"\nstart = "earliest"']
            parts += [f'subscribers = {{ {name} = "127.0.0.1:{ports[name]}" }}']
        self.config.write_text("\n".join(parts) + "\n")

    def processes(self) -> list[Process]:
        """See the class above."""
        return [*self.subscribers.values(), self.archiver, self.publisher]

    def close(self) -> None:
        """See the class above."""
        super().close()
        self.workload.__exit__()

    # -- what is done

    def cut_log(self) -> None:
        """What was written is archived, and in the server's log no more."""
        self.until_archived()
        self.server.sql("FLUSH BINARY LOGS")
        purge(self.server)

    def live(self) -> AbstractContextManager[None]:
        """For as long as the block lasts, changes come again and again."""
        return repeating(lambda: self.workload.change(1), 0.05)

    def wormhole(self, *arguments: str) -> tuple[int, str, str]:
        """``wormholectl`` in this process, with what it takes to reach the publisher."""
        return run(*arguments, *self.options)

    # -- what is seen

    def until_archived(self) -> None:
        """The archive holds everything that is committed now."""
        wanted = self.workload.sign()

        def archived() -> bool:
            store = self.store()
            manifests = {shard: store and store.read(shard) for shard in SHARDS}
            return _reached(wanted, {shard: one.end.order for shard, one in manifests.items() if one})

        self.wait("everything is archived", archived)

    def until_acknowledged(self, application: str) -> None:
        """The application has acknowledged everything that is committed now."""
        wanted = self.workload.sign()

        def acknowledged() -> bool:
            flows = [flow for flow in self.flows(application) if flow.HasField("marker")]
            return _reached(
                wanted, {flow.flow.partition("/")[2]: marker_from_message(flow.marker).order for flow in flows}
            )

        self.wait(f"{application} has everything", acknowledged)

    def missing(self, application: str) -> list[str]:
        """Updates that are archived and that the application was never told."""
        store, lacking = self.store(), []
        assert store is not None
        for shard in SHARDS:
            manifest = manifest_of(store, shard)
            came = self.mirrors[application].look().ids[shard]
            for entry in manifest.files:
                with open_file(store, shard, entry) as file:
                    rows = [row for batch in file.batches(columns=_ID) for row in batch.select(_ID).to_pylist()]
                lacking += [id_ for row in rows if (id_ := ":".join(map(str, row.values()))) not in came]
        return lacking

    def up_to_date(self, application: str) -> None:
        """Nothing is written: the application comes to hold what ``SELECT`` shows."""
        wanted = selected(self.workload.session, self.workload.tables)
        mirror, differ = self.mirrors[application], ["nothing came"]

        def same() -> bool:
            differ[:] = differences(wanted, mirror.look().rows, DEFAULTS)
            return not differ

        try:
            self.wait(f"{application} holds what the server does", same)
        except AssertionError as error:
            raise AssertionError("\n".join([*differ, str(error)])) from None


def _reached(wanted: dict[str, tuple[int, int]], ends: Mapping[str, LogPosition]) -> bool:
    """Whether the ends of shards lie at or behind places of their databases."""
    places = {shard.partition(".")[2]: (end.file, end.offset) for shard, end in ends.items()}
    return all(places.get(database, (0, 0)) >= place for database, place in wanted.items())


def _option(tls: TlsFiles) -> str:
    return f"{tls.cert},{tls.key},{tls.ca}"
