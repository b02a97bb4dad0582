"""How ``wormholectl`` shows things: ``printer`` is the only way to standard output; the others make rows and objects of
what it prints.

``lists`` turns what several publishers report into one table or object; ``flows`` and ``publishers`` are its columns;
``replays``, ``updates`` and ``live_log`` show one kind of thing each.
"""
