"""The sink for webhooks: signed HTTP requests, as Standard Webhooks describes them.

::

    kind        the kind
    settings    its settings, and the form of its URL
    sink        the open sink: its subscriber, and its report on the receiver
    writer      sends the records of each shard, one request at a time
    receiver    sends one request, and decides what its answer means
    message     pure: records -> the body and the id of a request
    secrets     the file with the secrets, and signatures
"""
