"""``make demo``: a live store, a publisher, three subscribers, two ``kill -9``, and the count of what arrived.

    python -m examples.demo [--seed N] [--seconds N] [--json] [--inject lose-one] [--keep] [--check FOLDER]

``workload`` (pure: what is written) -> ``writer`` (the process that owns the store) -> the publisher, as an operator starts it
-> ``receiver`` (the processes of the applications); both ends write a ``journal``, and ``checker`` (pure) compares the two.
``director`` carries the story out with ``processes`` and what ``journals`` and ``watch`` see of it, ``story`` prints it.
docs/demo.md says what the figures mean.
"""
