"""Measures throughput and latency of the system: ``make bench``. Figures are compared with raw gRPC in the same run.

``store`` writes a RocksDB log, ``publisher`` and ``subscriber`` are the real programs in processes of their own,
``raw`` is the limit to compare with, ``cases`` and ``caravans`` run them (``metered`` is the publisher with a meter at
its reader), ``__main__`` and ``caravans_report`` print. ``replay`` runs mass replays of a real archive, on
``spark_cluster`` too, beside ``parquet``, a program that only reads its files.
"""
