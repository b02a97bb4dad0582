"""Parked updates: the stores beside the datamarkers (port :mod:`wormhole.ports.dead_letters`), and the office that
fills and empties them.
"""
