#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/ipc/hash_golden.h and tests/ipc/index_key_golden.h by other implementations.

SHA-256 comes from hashlib, the index key from the Python module xxhash (not needed to build or test;
without it that file is left alone). The values never change within version 1 of the protocol.
"""

import hashlib
import pathlib
import struct

HERE = pathlib.Path(__file__).resolve().parent
LICENSE = "/* SPDX-License-Identifier: Apache-2.0 */\n"
HEAD = LICENSE + "/* Written by make_hash_golden.py; included with %s defined. */\n/* clang-format off */\n"


def u32(value):
    return struct.pack("<I", value)


def block_hash(parent, tokens, extras):
    data = b"kvpool block 1\0" + (parent or bytes(32)) + u32(len(tokens)) + b"".join(map(u32, tokens))
    for domain, text in extras:
        data += u32(domain) + u32(len(text)) + text
    return hashlib.sha256(data).digest()


def identity(pairs):
    data = b"kvpool identity 1\0" + u32(len(pairs))
    for key, value in pairs:
        data += u32(len(key)) + key + u32(len(value)) + value
    return hashlib.sha256(data).digest()


def literal(data):
    return '"' + "".join(f"\\x{byte:02x}" for byte in data) + '"'


def write_hashes():
    first = block_hash(None, range(64), [])
    values = {
        "PROBE": block_hash(None, range(16), [(1, b"kvpool")]),
        "FIRST": first,
        "SECOND": block_hash(first, range(64, 128), []),
        "NO_TOKENS": block_hash(None, [], []),
        "LARGE_TOKENS": block_hash(None, [0xFFFFFFFF, 0, 0x80000000], []),
        "SALT": block_hash(None, range(64), [(1, b"one")]),
        "ADAPTER": block_hash(None, range(64), [(2, b"one")]),
        "EXTRAS": block_hash(first, range(64), [(1, b"one"), (2, b""), (3, bytes(range(40)))]),
        "IDENTITY": identity([(b"kv_dtype", b"bf16"), (b"weights", b"0123abcd")]),
        "IDENTITY_EMPTY": identity([]),
    }
    lines = [f"HASH({name}, {literal(data)})\n" for name, data in values.items()]
    (HERE / "hash_golden.h").write_text(HEAD % "HASH(name, bytes)" + "".join(lines))


def write_keys():
    try:
        import xxhash
    except ImportError:
        print("no Python module xxhash: index_key_golden.h is left as it is")
        return
    data = bytes((3 * i + 1) & 0xFF for i in range(64))
    lines = []
    for namespace, epoch, group, length in ((1, 1, 0, 32), (1, 2, 0, 32), (7, 1 << 40, 0, 32), (1, 1, 3, 32),
                                            (0xFFFFFFFF, 2**64 - 1, 0xFFFFFFFF, 64), (1, 1, 0, 8), (1, 1, 0, 1)):
        scope = struct.pack("<IIQ", namespace, group, epoch)
        key = xxhash.xxh3_64_intdigest(data[:length], seed=xxhash.xxh64_intdigest(scope, seed=0))
        lines.append(f"KEY({namespace}u, {epoch}ull, {group}u, {length}, 0x{key:016x}ull)\n")
    (HERE / "index_key_golden.h").write_text(
        HEAD % "KEY(namespace_id, epoch, group, bytes, value)" + "".join(lines))


if __name__ == "__main__":
    write_hashes()
    write_keys()
