"""The sink for Redis and Valkey.

::

    kind        the kind
    settings    its settings, and the form of its URL
    sink        the open sink: its subscriber, and its report on the server
    invalidate  removes the keys of changed rows
    rows        keeps each row as a document     (changes: changes of rows from updates; stored: values read back)
    scripts     the Lua scripts that change rows in the server     (versions: which value is newer)
    flows       the record of each flow in the store: epoch, version, datamarker
    keys        the key of a row, by a template
    store       the connections to the server     (failures: turns its errors into errors of the port)
"""
