"""How ``wormholectl`` prints: ``printer`` is the only way to standard output, and tables are made here alone.

``lists`` turns what several publishers report into one table or object; ``flows`` and ``publishers`` are its columns.
The other modules show one kind of thing each: as rows for people, as objects for programs.
"""
