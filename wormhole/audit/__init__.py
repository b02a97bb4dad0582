"""Delivery counts: how many updates of each flow were delivered and processed, by windows of commit time.

``window_counts`` has those of one window, ``delivery_counts`` those of a flow, which its publisher stores with the
datamarker. ``sent_counts`` has what one epoch sent and what its subscriber reported, until it is acknowledged.
"""
