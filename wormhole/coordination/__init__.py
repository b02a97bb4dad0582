"""Live processes, owners of flows and stored configuration: one port, three forms (ZooKeeper, static, memory).

It has more than twenty modules: the port's three forms store the same records.
"""
