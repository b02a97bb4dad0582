"""Parked updates: the stores beside the datamarkers (port :mod:`wormhole.dead_letters`), and the office that fills and empties them."""
