"""The commands ``up``, ``down``, ``publisher run`` and ``monitor run``, which start and stop processes on this host."""
