"""The sink for NATS JetStream.

::

    kind        the kind
    settings    its settings, and the form of its URL
    sink        the open sink: its subscriber, and its report on the stream
    writer      publishes the records of each shard in order
    subjects    the subject of a record
    nkeys       a user's key, which signs the server's nonce
    connection  one connection to the servers, until it is lost
    failures    turns an error of the client or of the server into an error of the port
"""
