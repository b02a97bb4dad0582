"""What happens to an application whose effects are counted: one method for each fault, bounded, and over when it
returns. :meth:`~.counted.Counted.check` then has to find each effect once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import closing, contextmanager
from typing import Any, Final

from tests.support.eventually import until
from tests.system.harness.commit_proxy import PLACES
from tests.system.harness.counted import APPLICATION, Counted
from tests.system.harness.processes import Process
from tests.system.harness.targets import ServerTarget
from wormhole.model.errors import Fatal

__all__ = ["OF_EVERY_TARGET", "OF_SERVERS", "Faults"]

OF_EVERY_TARGET: Final = ("subscriber_killed", "publisher_killed", "both_killed", "swallowed", "rewind", "forward",
                          "loss")  # fmt: skip
OF_SERVERS: Final = ("server_killed", "cut", "cut_subscriber", "cut_publisher", "cut_server", "late_commit", "deadlock",
                     "rewind_twice")  # fmt: skip
_COMMITTED: Final = 2
"""The place of a COMMIT that the server has executed, and whose answer does not come."""


class Faults:
    """``counted``: runs, and has delivered everything."""

    def __init__(self, counted: Counted) -> None:
        self.counted, self.chance = counted, counted.chance
        self.publisher, self.subscriber = counted.publisher, counted.subscriber

    @property
    def target(self) -> ServerTarget:
        """That of a server."""
        assert isinstance(self.counted.target, ServerTarget)
        return self.counted.target

    # -- kill -9 in the middle of a transaction

    def subscriber_killed(self) -> None:
        """The handler has done half of a transaction, and maybe some whole ones before it."""
        with self._halfway():
            self.subscriber.kill()
        self.subscriber.start()

    def publisher_killed(self) -> None:
        """While the handler is at work."""
        with self._halfway():
            self.publisher.kill()
        self.publisher.start()

    def both_killed(self) -> None:
        """One after the other."""
        with self._halfway():
            for process in self.chance.sample((self.publisher, self.subscriber), 2):
                process.kill()
        self.subscriber.start()
        self.publisher.start()

    def server_killed(self) -> None:
        """It has half a transaction, which it forgets."""
        with self._halfway():
            self.target.restart()

    # -- the connection is cut in COMMIT

    def cut(self, place: int | None = None) -> None:
        """At any message of the exchange."""
        self._cut(lambda: None, place)

    def cut_subscriber(self) -> None:
        """It is killed at that moment: it never learns what became of the COMMIT."""
        self._cut(self.subscriber.kill)
        self.subscriber.start()

    def cut_publisher(self) -> None:
        """What was committed is not acknowledged."""
        self._cut(self.publisher.kill)
        self.publisher.start()

    def cut_server(self) -> None:
        """It is killed while it commits, or has just done so."""
        self._cut(self.target.kill)
        self.target.server.start()

    def late_commit(self) -> None:
        """The COMMIT reaches the server after the subscriber has asked what became of it."""
        self.target.proxy.hold()
        self.counted.transfer()
        self.target.proxy.await_fired()
        until(self.target.waiting, lambda: self.counted.story("did not ask for a row that the old session has"))
        self.target.proxy.release()

    # -- errors in the transaction

    def swallowed(self) -> None:
        """A statement fails, and the handler returns as if it had not."""
        self.counted.trick("swallow")
        self.counted.transfer()
        self.counted.done("swallow")

    def deadlock(self) -> None:
        """Another client has rows in the other order, and the server ends the handler's transaction."""
        self.counted.trick("gate")
        self.counted.transfer(1, "a", "b")
        self.counted.entered(self._owner())
        with closing(self.target.connect()) as other, closing(other.cursor()) as cursor:
            for statement in (self.target.heavier, "BEGIN", self.target.heavier, _touch("b")):
                cursor.execute(statement)
            waits = threading.Thread(target=cursor.execute, args=(_touch("a"),))
            waits.start()
            until(self.target.waiting, lambda: self.counted.story("the other client does not wait"))
            self.counted.untrick("gate")
            waits.join()
            cursor.execute("COMMIT")

    # -- what operators do

    def rewind(self) -> None:
        """Some transactions are delivered again, once."""
        self._rewind()

    def rewind_twice(self) -> None:
        """The publisher dies twice before it has stored an acknowledgement since: no more than once all the same."""
        self._rewind(self._dies_at_commit)
        self.target.proxy.await_fired()
        self._dies_at_commit()
        self.publisher.start()
        self.counted.transfer()
        self.target.proxy.await_fired()
        self.publisher.start()

    def forward(self) -> None:
        """Some transactions are passed over, for good."""
        self._change("pause")
        until(lambda: self.counted.flow().paused, lambda: self.counted.story("not paused"))
        self.counted.passed_over(self.counted.transfer(2))
        self._change("set_marker", place="latest")
        self.counted.transfer()
        self._change("resume")
        self._killed()

    def loss(self) -> None:
        """The log of some transactions is gone, and an operator accepts that."""
        self.publisher.kill()
        self.counted.transfer(2)
        self.counted.writer.flush()  # this log's end is still kept by the publisher
        self.counted.passed_over(self.counted.transfer(2))
        self.counted.writer.flush()
        self.counted.transfer()
        self.publisher.start()
        until(lambda: self.counted.flow().loss_pending, lambda: self.counted.story("no loss is noticed"))
        until(self._accepted, lambda: self.counted.story("the application does not decline the loss"))
        self._killed()

    # -- a zombie

    def zombie(self, *, in_transaction: bool) -> None:
        """The shard's subscriber is frozen until another one has the shard, and then goes on."""
        owner = self._owner()
        if in_transaction:
            self._gate(owner)
        owner.signal(signal.SIGSTOP)
        if in_transaction:
            self.counted.untrick("gate")
        self.counted.transfer()
        until(lambda: self._owner() is not owner, lambda: self.counted.story("the shard does not move"))
        self.counted.check()
        owner.signal(signal.SIGCONT)

    # -- inside

    def _owner(self) -> Process:
        name = self.counted.flow().subscriber
        return next((one for one in self.counted.subscribers if one.name == name), self.subscriber)

    def _gate(self, owner: Process) -> None:
        first = self.counted.number + 1
        count = self.chance.randint(1, 10)
        self.counted.trick("gate", str(self.chance.randint(first, first + count - 1)))
        self.counted.transfer(count)
        self.counted.entered(owner)

    @contextmanager
    def _halfway(self) -> Any:
        """Within the block the handler is in the middle of one of some transactions."""
        self._gate(self._owner())
        yield
        self.counted.untrick("gate")

    def _cut(self, before: Callable[[], None], place: int | None = None) -> None:
        if place is None:
            place = self.chance.randrange(PLACES[self.target.kind])
        self.target.proxy.arm(place, before)
        self.counted.transfer(self.chance.randint(1, 3))
        self.target.proxy.await_fired()

    def _dies_at_commit(self) -> None:
        """The publisher is killed at one of the next COMMITs: of an assignment, or of a datamarker."""

        def dies() -> None:
            # The COMMIT may be one that a former publisher caused.
            until(lambda: self.publisher.alive, lambda: self.counted.story("the publisher was not started"))
            self.publisher.kill()

        self.target.proxy.arm(_COMMITTED, dies, passing=self.chance.randrange(3))

    def _rewind(self, before: Callable[[], None] = lambda: None) -> None:
        marker = self.counted.flow().marker
        self.counted.transfer(3)
        self.counted.check()
        before()
        order = marker.order
        self._change("set_marker", place=f"{order.incarnation}/{order.file}/{order.offset}")
        self.counted.again(int(marker.delivered) // 2)  # each transaction has two sequence numbers

    def _killed(self) -> None:
        """What the application keeps does not undo what an operator did: not now, and not after a death of each."""
        for process in (self.subscriber, self.publisher):
            self.counted.transfer()
            self.counted.check()
            process.kill()
            process.start()

    def _accepted(self) -> bool:
        """Accept a loss, which an operator can do only once the application has declined it."""
        try:
            self._change("accept_loss")
        except Fatal as refused:
            if "being asked" not in str(refused):
                raise
            return False
        return True

    def _change(self, what: str, **fields: Any) -> None:
        self.publisher.change(APPLICATION, what, **fields)


def _touch(account: str) -> str:
    return f"UPDATE counters SET total = total WHERE account = '{account}'"
