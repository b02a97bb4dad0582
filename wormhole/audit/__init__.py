"""Delivery counts: how many updates of each flow were delivered and processed, by windows of commit time.

``window_counts`` has the counts of one window. ``delivery_counts`` has those of a flow, which its publisher stores with
the datamarker. ``sent_counts`` has the updates that one epoch sent and its subscriber's reports, until the updates are
acknowledged.
"""
