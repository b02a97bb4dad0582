"""Live processes, owners of flows and stored configuration: one port, three forms (ZooKeeper, static, memory)."""
