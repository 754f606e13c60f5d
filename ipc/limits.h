/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every limit that a peer can meet, with its reason. Both sides compile this file; the
 * daemon refuses what is above, the client says so before it asks.
 */
#ifndef KVPOOL_IPC_LIMITS_H
#define KVPOOL_IPC_LIMITS_H

/* Far below the default SO_SNDBUF (212,992 bytes), so that a message always fits an empty socket. */
#define KVW_MAX_MESSAGE_BYTES 65536u
/* A peer's text in our log or tables: names, error texts. */
#define KVW_MAX_NAME_BYTES 63u
#define KVW_MAX_TEXT_BYTES 511u
/* Descriptors a message carries; the kernel's own limit is 253. Unread ones count against the sender. */
#define KVW_MAX_FDS_PER_MESSAGE 64u
/* Nesting of a message: the map, a list in it, a map in the list. */
#define KVW_MAX_DEPTH_MSGPACK 3u

/* Connections at once: each costs the daemon about 12 descriptors while attached. */
#define KVW_MAX_SESSIONS 1024u
#define KVW_MAX_POOLS 64u
#define KVW_MAX_SHARDS 16u
#define KVW_MAX_GROUPS 8u
/* Planes of a pool: 60 layers of k, v and index_k are 180. */
#define KVW_MAX_PLANES 512u
/* Pieces of a shard that is shared by descriptors: what a client imports and maps one by one. */
#define KVW_MAX_CHUNKS 256u
/* Engines attached to one pool at once; each owns a sink block. */
#define KVW_MAX_ENGINES 256u

/* 64 M blocks: block ids stay well inside int32, times an index scale of 31. */
#define KVW_MAX_BLOCKS (1u << 26)
#define KVW_MAX_BLOCK_TOKENS 65536u
#define KVW_MAX_HASH_BYTES 64u
/* Sequences an engine may have open. */
#define KVW_MAX_SEQS 8192u
/* Blocks of one row: a million tokens in blocks of 16. */
#define KVW_MAX_ROW_BLOCKS 65536u
/* Batch slots: pipeline stages + 1 in flight. */
#define KVW_MIN_SLOTS 2u
#define KVW_MAX_SLOTS 16u
#define KVW_MAX_SLOT_BYTES (1u << 30)
/* Tables segment of one engine: 64 GiB of addresses; the configuration's tables_limit is far lower. */
#define KVW_MAX_TABLES_BYTES (1ull << 36)

/*
 * Threads of a client that one completion wakes: each costs the daemon a microsecond or so. More of them find
 * their answer at the end of their slice.
 */
#define KVW_MAX_WOKEN 64

/* Timelines of a worker: one per stream. */
#define KVW_TIMELINES 8u
/*
 * What a timeline word is when its writer is dead: this, and no step beside it. A device compares by the sign of the difference, and only this
 * word is not below any step from 1 to 2^63 - 1: with step 7 in its low bits a wait for step 5 would never end.
 */
#define KVW_TIMELINE_POISON (1ull << 63)

/* Records of each ring, a power of two: the publishes of 128 rows over 32 poll intervals. */
#define KVW_RING_RECORDS 4096u
/* Blocks that one return record may name: the size of the return area over the ring's. */
#define KVW_RETURN_ENTRIES 16384u
/* Most blocks a lease holds, and one LEASE asks for. */
#define KVW_LEASE_ENTRIES 65536u
/*
 * Answers that an engine may have unread: 4 MiB, which the daemon populates. Two of the largest opens or
 * leases.
 */
#define KVW_MAX_ANSWERS 131072u

/* Identity entries (key = value) of an engine and the bytes of each. */
#define KVW_MAX_IDENTITY 32u

#endif
