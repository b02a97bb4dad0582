"""``make demo``: a live store, a publisher, three subscribers, two ``kill -9``, and the count of what arrived.

    python -m examples.demo [--datastore rocksdb|mysql|postgres] [--seed N] [--seconds N] [--json]
                            [--inject lose-one] [--keep] [--check FOLDER]

``workload`` (pure: what is written) -> ``writer`` (the process that writes to the store) -> the publisher, as an
operator starts it -> ``receiver`` (the processes of the applications); both ends write a ``journal``, and ``checker``
(pure) compares the two. ``datastore`` is what a kind of store has to offer; ``rocksdb_store`` and ``mysql_store`` (with
``mariadb``, a private server) offer it. ``director`` carries the story out with ``processes`` and what ``journals`` and
``watch`` see of it, ``story`` prints it. docs/demo.md explains what the figures mean.
"""
