/* SPDX-License-Identifier: Apache-2.0 */
/* Written by make_hash_golden.py; included with KEY(namespace_id, epoch, group, bytes, value) defined. */
/* clang-format off */
KEY(1u, 1ull, 0u, 32, 0xd3fad5a38b152478ull)
KEY(1u, 2ull, 0u, 32, 0x9a781e3aed5e82baull)
KEY(7u, 1099511627776ull, 0u, 32, 0x2e25c0dbc8bb051full)
KEY(1u, 1ull, 3u, 32, 0x5103b293065dc4adull)
KEY(4294967295u, 18446744073709551615ull, 4294967295u, 64, 0x6a9f5c828f5c0c60ull)
KEY(1u, 1ull, 0u, 8, 0x57de762b2acb03e6ull)
KEY(1u, 1ull, 0u, 1, 0x684cd215e1e44a40ull)
