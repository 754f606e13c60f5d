#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/wire/*.hex and tests/fuzz/corpus/message/*.

A second implementation of the wire: it reads wire.def by its text and packs by the rules of the
msgpack specification, so that the golden bytes do not come from the code they check. The bytes are
a promise to other versions: run this when a message is added, and look at what changed.
"""

import pathlib
import re
import struct

TESTS = pathlib.Path(__file__).resolve().parent.parent
IPC = TESTS.parent / "ipc"
SEQUENCE = 0x1122334455667788
NUMBERS = [1, 0x7F, 0x80, 0xFF, 0x100, 0xFFFF, 0x10000, 0xFFFFFFFF, 0x100000000, 2**64 - 1]
SIGNED = [-1, -32, -33, -128, -129, -32768, -32769, -(2**31), -(2**31) - 1, -(2**63), 2**63 - 1]


def limits():
    text = (IPC / "limits.h").read_text()
    return {n: int(v) for n, v in re.findall(r"#define (KVW_\w+) (\d+)u\n", text)}


def definitions():
    """Field lists by name, items by name, and messages as (name, type, field list)."""
    text = re.sub(r"/\*.*?\*/", "", (IPC / "wire.def").read_text(), flags=re.S).replace("\\\n", " ")
    known = limits()
    fields = {"KVW_EMPTY_FIELDS": []}
    for name, body in re.findall(r"#define (KVW_\w+_FIELDS)\(U, I, S, B, L\)([^\n]*)", text):
        rows = []
        for kind, arguments in re.findall(r"\b([UISBL])\(([^)]*)\)", body):
            parts = [part.strip() for part in arguments.split(",")]
            limit = parts[-1] if kind in "SBL" else "0"
            rows.append((kind, int(parts[0]), parts[1], int(known.get(limit, limit)) if kind in "SBL" else 0,
                         parts[2] if kind == "L" else None))
        fields[name] = rows
    items = dict(re.findall(r"KVW_ITEM\((\w+), (\w+)\)", text))
    messages = [(n, int(t), f) for n, t, f in re.findall(r"KVW_MESSAGE\((\w+), (\d+), (\w+)\)", text)]
    return fields, items, messages


def pack_number(value):
    if 0 <= value < 128 or -32 <= value < 0:
        return struct.pack(">b", value)
    for low, high, tag, form in (
        (0, 2**8, 0xCC, ">BB"), (0, 2**16, 0xCD, ">BH"), (0, 2**32, 0xCE, ">BI"), (0, 2**64, 0xCF, ">BQ"),
        (-(2**7), 0, 0xD0, ">Bb"), (-(2**15), 0, 0xD1, ">Bh"), (-(2**31), 0, 0xD2, ">Bi"), (-(2**63), 0, 0xD3, ">Bq"),
    ):
        if low <= value < high:
            return struct.pack(form, tag, value)
    raise ValueError(value)


def pack_length(length, fix, fix_limit, tags):
    if length < fix_limit:
        return bytes([fix | length])
    for limit, tag, form in tags:
        if length < limit:
            return struct.pack(form, tag, length)
    raise ValueError(length)


def pack_text(data):
    return pack_length(len(data), 0xA0, 32, [(2**8, 0xD9, ">BB"), (2**16, 0xDA, ">BH")]) + data


def pack_bytes(data):
    return pack_length(len(data), 0, 0, [(2**8, 0xC4, ">BB"), (2**16, 0xC5, ">BH")]) + data


def pack_array(parts):
    return pack_length(len(parts), 0x90, 16, [(2**16, 0xDC, ">BH")]) + b"".join(parts)


def pack_map(parts):
    return pack_length(len(parts), 0x80, 16, [(2**16, 0xDE, ">BH")]) + b"".join(parts)


class Wire:
    def __init__(self):
        self.fields, self.items, self.messages = definitions()

    def value(self, row, index):
        kind, key, name, limit, item = row
        if kind == "U":
            return pack_number(NUMBERS[(key + index) % 10])
        if kind == "I":
            return pack_number(SIGNED[(key + index) % 11])
        if kind == "S":
            return pack_text((name + " \u20ac").encode())
        if kind == "B":
            return pack_bytes(bytes((7 * key + i) & 0xFF for i in range(min(5 + key, limit))))
        rows = self.fields[self.items[item]]
        return pack_array([pack_map(self.entries(rows, 0)), pack_map(self.entries(rows, 1)), pack_map([])])

    def entries(self, rows, index):
        return [pack_number(row[1]) + self.value(row, index) for row in rows]

    def message(self, number, field_list):
        envelope = [pack_number(0) + pack_number(number), pack_number(1) + pack_number(SEQUENCE)]
        return pack_map(envelope + self.entries(self.fields[field_list], number))


# Short inputs of a peer that means ill: counts without bytes, nesting, keys twice, text that is none.
HOSTILE = {
    "array_of_2_to_27": "dd07ffffff",
    "map_of_2_to_32": "dfffffffff",
    "nested_arrays": "dd07ffffff" * 31,
    "map_in_map": "8200020182",
    "key_twice": "83000a01000201",
    "field_twice": "84000a010002010201",
    "list_of_2_to_32": "83002b010004ddffffffff",
    "list_of_64_without_bytes": "83002b010004dc0040",
    "item_of_2_to_32": "83002b01000491dfffffffff",
    "list_in_item": "83002b010004918100" + "91" * 40,
    "text_with_nul": "830004010002a400414243",
    "text_overlong": "830004010002a2c080",
    "text_longer_than_bytes": "830004010002dbffffffff41",
    "negative_number": "83000a010002ff",
    "extension": "83000a010002d40100",
    "never_used": "c1",
    "reserved_type": "82004001cf1122334455667788",
    "unknown_type": "8200cd03e70100",
    "other_order": "860002010008a16107c40101030502cf0000000000000001",
    "every_width": "870006010003d0010ad1000106d20000000107d3000000000000000108ce00000001",
}


def main():
    wire = Wire()
    golden = TESTS / "golden" / "wire"
    corpus = TESTS / "fuzz" / "corpus" / "message"
    golden.mkdir(parents=True, exist_ok=True)
    corpus.mkdir(parents=True, exist_ok=True)
    for name, number, field_list in wire.messages:
        data = wire.message(number, field_list)
        text = data.hex()
        lines = [text[i:i + 96] for i in range(0, len(text), 96)]
        (golden / f"{name}.hex").write_text("\n".join(lines) + "\n")
        (corpus / f"golden_{name}").write_bytes(data)
    for name, text in HOSTILE.items():
        (corpus / f"hostile_{name}").write_bytes(bytes.fromhex(text))


if __name__ == "__main__":
    main()
