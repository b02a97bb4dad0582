"""The sink for Apache Kafka, and for servers that speak its protocol.

::

    kind      the kind
    settings  its settings, and the form of its URL
    sink      the open sink: its subscriber, and the report of `sink check`
    writer    the producers of all shards, each in a thread of its own
    shard     the transactions of one shard
    markers   the record of a shard's datamarker, and its reader
    clients   the configuration of each Kafka client
    names     pure: names of topics and transactions, partitions of keys
    failures  turns an error of the client into an error of the port

Between two datamarkers a shard has one Kafka transaction, with the records and the datamarker. So readers with
``read_committed`` get each record once, even if the process dies.
"""
