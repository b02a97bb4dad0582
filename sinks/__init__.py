"""Fills other stores (databases, files, message brokers) with row changes, without a program of the user's.

::

    port        the interface that a kind of store implements
    kinds       the installed kinds, by the scheme of their URLs
    settings    one table [sinks.NAME] of a configuration, checked by its kind
    running     runs one sink as a subscriber
    envelopes   the JSON documents of updates
    records     for kinds that cannot roll back: whole transactions as records, written in order
    jsonlines   the kind that writes files of JSON lines
    kafka       the kind that writes to Kafka within transactions
    nats        the kind that publishes to a stream of NATS JetStream
    redis       the kind for Redis and Valkey
    commands    `wormholectl sink`

A sink is an ordinary subscriber. Of this project's packages it imports ``wormhole`` and ``subscriber_sdk``; its
commands also import the command line. docs/sinks.md is the page for users.
"""
