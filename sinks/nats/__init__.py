"""The sink for NATS JetStream.

::

    kind        the kind
    settings    its settings, and what its URL may be
    sink        the open sink: its subscriber, and its report on the stream
    writer      publishes the records of each shard in order
    subjects    the subject of a record
    nkeys       a user's key, which signs what the server sends
    connection  one connection to the servers, until it is lost
    failures    what an error of the client or of the server means
"""
