"""The sink for files of JSON lines, and for standard output.

::

    kind        the kind
    settings    its settings, and the form of its URL
    sink        the open sink: its subscriber, and its report on the folder
    files       writes the records of each shard into files of its own
    output      writes the records of all shards to standard output
    failures    turns an error of the operating system into an error of the port
    shard_file  one file while it is written, and the repair of files that dead processes left
"""
