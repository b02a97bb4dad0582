"""Operating publishers from a program: the functions of the command line as a small client.

    from wormhole.admin import Admin

    admin = Admin("shop.toml")
    for flow in admin.flows():
        print(flow.flow, flow.state, flow.lag_s)
    admin.pause("cache/db1")

``client`` has all functions for a program. Below it, ``discovery`` finds publishers and coordinators,
``admin_service`` calls publishers, ``configuration`` plans and applies a configuration file. The command line is built
on the same modules.
"""

from wormhole.admin.client import Admin, Change
from wormhole.admin.configuration import ConfigPlan
from wormhole.host.where import Where
from wormhole.wire.v1.admin_pb2 import DeadLetter, FlowStatus, PublisherStatus

__all__ = ["Admin", "Change", "ConfigPlan", "DeadLetter", "FlowStatus", "PublisherStatus", "Where"]
