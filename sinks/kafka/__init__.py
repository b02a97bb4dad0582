"""The sink for Apache Kafka, and for servers that speak its protocol.

::

    kind      the kind
    settings  its settings, and what its URL may be
    sink      the open sink: its subscriber, and what `sink check` reports
    writer    the producers of all shards, each in a thread of its own
    shard     the transactions of one shard
    markers   the record of a shard's datamarker, and its reader
    clients   how a client connects
    names     pure: names of topics and transactions, partitions of keys
    failures  what an error of the client means for a sink

Between two datamarkers a shard has one transaction of Kafka, with its records and the datamarker. So readers with
``read_committed`` get each record once, whatever ends the process.
"""
