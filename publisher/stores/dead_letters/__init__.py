"""The stores of parked updates, which are kept beside the datamarkers (port :mod:`wormhole.ports.dead_letters`)."""
