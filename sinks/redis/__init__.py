"""The sink for Redis and Valkey.

::

    kind        the kind
    settings    its settings, and what its URL may be
    sink        the open sink: its subscriber, and what it finds in the server
    invalidate  removes the keys of changed rows
    rows        keeps each row as a document     (changes: what it makes of an update; stored: values read back)
    scripts     what changes rows in the server     (versions: which value is newer)
    flows       the record of each flow in the store: epoch, version, datamarker
    keys        the key of a row, by a template
    store       the connections to the server     (failures: what its answers mean)
"""
