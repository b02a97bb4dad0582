"""Ownership of logs, simulated: real candidates, assigners, coordinators and marker stores in virtual time, over a
ZooKeeper, a network and subscribers that one seed decides.

``python -m tests.simulation SEED`` prints what happens under a seed.
"""
