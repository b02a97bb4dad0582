"""The sink for files of JSON lines, and for standard output.

::

    kind        the kind
    settings    its settings, and what its URL may be
    sink        the open sink: its subscriber, what it finds in the folder
    files       writes the records of each shard into files of its own
    output      writes the records of all shards to standard output
    failures    what an error of the operating system means
    shard_file  one file while it is written, and the files that processes left when they died
"""
