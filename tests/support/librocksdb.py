"""Debian's librocksdb through its C API: two-phase commit, which no Python binding offers."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_char_p, c_int, c_size_t, c_ubyte, c_void_p
from ctypes.util import find_library
from pathlib import Path

import pytest

_POINTERS = [
    "options_create",
    "transactiondb_options_create",
    "transactiondb_open",
    "transaction_options_create",
    "writeoptions_create",
    "transaction_begin",
    "readoptions_create",
    "flushoptions_create",
]


def load() -> ctypes.CDLL:
    """The library; skips the test where it is not installed."""
    name = find_library("rocksdb")
    if name is None:
        pytest.skip("librocksdb is not installed: apt-get install librocksdb7.8")
    library = ctypes.CDLL(name)
    for function in _POINTERS:
        getattr(library, f"rocksdb_{function}").restype = c_void_p
    return library


class TransactionStore:
    """A TransactionDB with default options and the write-committed policy."""

    def __init__(self, path: Path) -> None:
        self.lib = load()
        self._options = c_void_p(self.lib.rocksdb_options_create())
        self.lib.rocksdb_options_set_create_if_missing(self._options, c_ubyte(1))
        self.lib.rocksdb_options_set_max_write_buffer_number(self._options, c_int(8))
        self._db_options = c_void_p(self.lib.rocksdb_transactiondb_options_create())
        self._write = c_void_p(self.lib.rocksdb_writeoptions_create())
        self._transaction_options = c_void_p(self.lib.rocksdb_transaction_options_create())
        self._db = c_void_p(self._call("transactiondb_open", self._options, self._db_options, str(path).encode()))

    def _call(self, name: str, *arguments: object) -> int:
        error = c_char_p()
        result = getattr(self.lib, f"rocksdb_{name}")(*arguments, byref(error))
        if error.value is not None:
            raise RuntimeError(f"{name}: {error.value.decode()}")
        return int(result or 0)

    def put(self, key: bytes, value: bytes, *, wal: bool = True) -> None:
        """Outside any transaction."""
        self.lib.rocksdb_writeoptions_disable_WAL(self._write, c_int(0 if wal else 1))
        self._call("transactiondb_put", self._db, self._write, key, c_size_t(len(key)), value, c_size_t(len(value)))
        self.lib.rocksdb_writeoptions_disable_WAL(self._write, c_int(0))

    def begin(self, name: bytes) -> Transaction:
        """A transaction that can be prepared under ``name``."""
        handle = c_void_p(self.lib.rocksdb_transaction_begin(self._db, self._write, self._transaction_options, None))
        self._call("transaction_set_name", handle, name, c_size_t(len(name)))
        return Transaction(self, handle)

    def flush(self) -> None:
        """Write the memtable out: the next write begins a new WAL."""
        options = c_void_p(self.lib.rocksdb_flushoptions_create())
        self._call("transactiondb_flush", self._db, options)
        self.lib.rocksdb_flushoptions_destroy(options)

    def close(self) -> None:
        """Close the database."""
        self.lib.rocksdb_transactiondb_close(self._db)


class Transaction:
    """One transaction; its calls are the library's."""

    def __init__(self, store: TransactionStore, handle: c_void_p) -> None:
        self._store = store
        self._handle = handle

    def put(self, key: bytes, value: bytes) -> None:
        self._store._call("transaction_put", self._handle, key, c_size_t(len(key)), value, c_size_t(len(value)))

    def delete(self, key: bytes) -> None:
        self._store._call("transaction_delete", self._handle, key, c_size_t(len(key)))

    def prepare(self) -> None:
        self._store._call("transaction_prepare", self._handle)

    def commit(self) -> None:
        self._store._call("transaction_commit", self._handle)
        self.lib_destroy()

    def rollback(self) -> None:
        self._store._call("transaction_rollback", self._handle)
        self.lib_destroy()

    def lib_destroy(self) -> None:
        self._store.lib.rocksdb_transaction_destroy(self._handle)
