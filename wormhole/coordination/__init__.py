"""Live processes, owners of flows and stored configuration: one port with three forms (ZooKeeper, static, memory).

The package has more than twenty modules because the port's three forms store the same records.
"""
