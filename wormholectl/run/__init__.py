"""``up``, ``down``, ``publisher run`` and ``monitor run``: the processes that an operator starts here."""
