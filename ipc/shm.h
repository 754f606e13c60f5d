/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The layout of every shared segment, version 1.
 *
 *   segment    made of               daemon        clients          section
 *   state      memfd, never sent     sole writer   -                block records
 *   directory  memfd, one a pool     sole writer   read only        header, counters, block words, buckets
 *   tables     memfd, one an engine  pread         read-write       rows, returns, slots
 *   answers    memfd, one an engine  sole writer   read only        what the verbs answer
 *   channel    memfd, one a session  read-write    read-write       request ring, completion ring
 *   timelines  memfd, one a worker   read only *   read-write **    8 words
 *   pool       memfd, one a shard    pread/pwrite  read-write       block bytes; ipc/geometry.h
 *
 *    * but for the poison, when the worker is dead
 *   ** engines of the same namespace may have it read only
 *
 * Rules: offsets and indices, never pointers; little endian; one writer per field; what
 * another process may write is loaded once (atomically) into a local, and the local is
 * validated. Fields marked [reserved] are zero in version 1 and refused when they are not.
 * If you add a field, also add its static_assert, and raise KVW_LAYOUT_VERSION when an
 * old reader would misread it.
 */
#ifndef KVPOOL_IPC_SHM_H
#define KVPOOL_IPC_SHM_H

#include <assert.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "limits.h"

#define KVW_LAYOUT_VERSION 1u
#define KVW_PAGE_BYTES 4096u
#define KVW_CACHE_LINE 64u

/* "KVPD" and so on, read as little-endian u32: what a segment is, first thing in it. */
#define KVW_MAGIC_STATE 0x5350564bu
#define KVW_MAGIC_DIRECTORY 0x4450564bu
#define KVW_MAGIC_TABLES 0x5450564bu
#define KVW_MAGIC_CHANNEL 0x4350564bu
#define KVW_MAGIC_TIMELINES 0x4c50564bu

static_assert(ATOMIC_LLONG_LOCK_FREE == 2 && ATOMIC_INT_LOCK_FREE == 2,
	      "shared words need lock-free atomics");

/* States of a block; the numbers stand in records, block words and messages. */
#define KVW_BLOCK_STATE_MAP(X)                                                                               \
	X(FREE, 0, "free")                                                                                   \
	X(LEASED, 1, "leased")                                                                               \
	X(PENDING, 2, "pending")                                                                             \
	X(CACHED, 3, "cached")                                                                               \
	X(ORPHAN, 4, "orphan")                                                                               \
	X(DRAINING, 5, "draining")                                                                           \
	X(FROZEN, 6, "frozen")                                                                               \
	X(QUARANTINED, 7, "quarantined")

enum kvw_block_state {
#define KVW_BLOCK_STATE_ENUM(name, number, text) KVW_BLOCK_##name = number,
	KVW_BLOCK_STATE_MAP(KVW_BLOCK_STATE_ENUM)
#undef KVW_BLOCK_STATE_ENUM
		KVW_BLOCK_STATES
};

/* ------------------------------------------------------------------ state: header and records */

/*
 * One block's truth, 128 bytes, self-contained. Written as: commit = 0, barrier, body, barrier,
 * commit = XXH3-64 over (id, incarnation, bytes 0..119). Id 0 is the null block.
 */
struct kvw_block_record {
	uint8_t hash[KVW_MAX_HASH_BYTES]; /* zero unless published */
	uint64_t generation;              /* raised by every grant */
	uint64_t parent_generation;
	int32_t parent; /* block before this one in its chain; -1: none */
	uint32_t namespace_id;
	uint64_t session;  /* owner (LEASED..), writer (PENDING, CACHED, ORPHAN) */
	uint64_t step;     /* PENDING, DRAINING: the step that must be reached */
	uint64_t last_use; /* CACHED: the pool's clock at its last release */
	uint8_t state;
	uint8_t tier;  /* [reserved] */
	uint8_t group; /* [reserved] */
	uint8_t hash_bytes;
	uint8_t timeline;  /* of `step` */
	uint8_t plane_set; /* bits of the plane sets written */
	uint16_t flags;    /* KVW_RECORD_* */
	uint64_t commit;
};

#define KVW_RECORD_NULL 1u /* the null block */
#define KVW_RECORD_SINK 2u /* an engine's sink block, on top of the pool's size */

static_assert(sizeof(struct kvw_block_record) == 128, "record size");
static_assert(offsetof(struct kvw_block_record, generation) == 64, "record layout");
static_assert(offsetof(struct kvw_block_record, parent_generation) == 72, "record layout");
static_assert(offsetof(struct kvw_block_record, parent) == 80, "record layout");
static_assert(offsetof(struct kvw_block_record, namespace_id) == 84, "record layout");
static_assert(offsetof(struct kvw_block_record, session) == 88, "record layout");
static_assert(offsetof(struct kvw_block_record, step) == 96, "record layout");
static_assert(offsetof(struct kvw_block_record, last_use) == 104, "record layout");
static_assert(offsetof(struct kvw_block_record, state) == 112, "record layout");
static_assert(offsetof(struct kvw_block_record, flags) == 118, "record layout");
static_assert(offsetof(struct kvw_block_record, commit) == 120, "record layout");

/* First page of the state segment; the session table and the records follow, each page-aligned. */
struct kvw_state_header {
	uint32_t magic;
	uint32_t layout_version;
	uint64_t incarnation;
	uint32_t blocks; /* records, null and sink blocks included */
	uint32_t sessions;
	uint64_t session_table; /* byte offset */
	uint64_t records;       /* byte offset */
	uint64_t epoch;
	uint32_t adopt_attempts; /* [reserved] */
	uint32_t clean_end;      /* 1: the daemon ended in order */
};
static_assert(sizeof(struct kvw_state_header) == 56, "state header");

/* What a restarted daemon would need to know of a session. */
struct kvw_session_record {
	uint64_t session;
	uint64_t engine;
	uint32_t uid;
	uint32_t pid;
	uint64_t lock_byte; /* of the pool's OFD lock */
	uint64_t commit;    /* 0: unused entry */
	uint64_t zero[3];   /* [reserved] */
};
static_assert(sizeof(struct kvw_session_record) == 64, "session record");

/* ------------------------------------------------------------------ directory */

/* Counters page: X(name, help). Sole writer is the daemon; monotonic since the daemon's start. */
#define KVW_COUNTER_MAP(X)                                                                                   \
	X(lookup_blocks, "blocks asked for by opens")                                                        \
	X(hit_blocks, "blocks matched by opens")                                                             \
	X(granted_blocks, "blocks granted to engines")                                                       \
	X(published_blocks, "blocks made findable")                                                          \
	X(duplicate_blocks, "published blocks whose hash was there already")                                 \
	X(evicted_blocks, "cached blocks given to another use")                                              \
	X(flushed_blocks, "cached blocks freed by flush")                                                    \
	X(orphaned_blocks, "blocks made unfindable while referenced")                                        \
	X(returned_blocks, "leased blocks given back")                                                       \
	X(quarantined_blocks, "blocks of dead sessions that waited for the proof")                           \
	X(stale_refusals, "presented ids whose generation was stale")                                        \
	X(no_blocks, "requests refused for want of blocks")                                                  \
	X(quota_refusals, "requests refused by a quota")                                                     \
	X(sessions_ended, "sessions that ended in order")                                                    \
	X(sessions_died, "sessions whose process died")                                                      \
	X(sessions_revoked, "sessions ended by the daemon")

enum kvw_counter {
#define KVW_COUNTER_ENUM(name, help) KVW_COUNTER_##name,
	KVW_COUNTER_MAP(KVW_COUNTER_ENUM)
#undef KVW_COUNTER_ENUM
		KVW_COUNTERS
};
static_assert(KVW_COUNTERS * 8 <= KVW_PAGE_BYTES, "counters page");

/*
 * Page 0: this header. Page 1: counters, u64 each in the order of KVW_COUNTER_MAP.
 * Then, page-aligned: block words, buckets.
 */
struct kvw_directory_header {
	uint32_t magic;
	uint32_t layout_version;
	uint64_t incarnation;
	uint64_t bytes; /* of the whole segment */
	uint32_t pool;
	uint32_t blocks;       /* null and sink blocks included */
	uint64_t block_words;  /* byte offset; u64[blocks] */
	uint64_t buckets;      /* byte offset; struct kvw_bucket[bucket_count] */
	uint32_t bucket_count; /* a power of two */
	uint32_t zero;         /* [reserved] */
	_Alignas(KVW_CACHE_LINE) _Atomic uint64_t epoch;
	_Alignas(KVW_CACHE_LINE) _Atomic uint64_t
		heartbeat; /* raised every poll; judged by the reader's clock */
	_Alignas(KVW_CACHE_LINE) _Atomic uint32_t daemon_sleeping; /* 1: ring the doorbell after a post */
};
static_assert(offsetof(struct kvw_directory_header, epoch) == 64, "directory header");
static_assert(offsetof(struct kvw_directory_header, heartbeat) == 128, "directory header");
static_assert(offsetof(struct kvw_directory_header, daemon_sleeping) == 192, "directory header");
static_assert(sizeof(struct kvw_directory_header) <= KVW_PAGE_BYTES, "directory header");

/* A block word: generation << 8 | state. One aligned store, so a reader never sees a mixture. */
static inline uint64_t kvw_block_word(uint64_t generation, enum kvw_block_state state)
{
	return generation << 8 | (uint64_t)state;
}

/*
 * The prefix index as clients see it: a hint until pinned by an open. Bucket = key & (bucket_count - 1),
 * an entry = tag << 32 | block id, tag = key >> 32, 0 = empty (id 0 is never indexed: with a tag it is
 * no match, and not empty). Entries never move; a bucket without an empty entry says "ask the daemon".
 * The key is kvw_index_key().
 */
#define KVW_BUCKET_ENTRIES 8u
struct kvw_bucket {
	_Atomic uint64_t entries[KVW_BUCKET_ENTRIES];
};
static_assert(sizeof(struct kvw_bucket) == 64, "bucket");

/* Key of (namespace, epoch, group, hash): XXH3-64 of the hash, seeded by XXH64 of the rest. */
uint64_t kvw_index_key(uint32_t namespace_id, uint64_t epoch, uint32_t group, const uint8_t *hash,
		       uint32_t hash_bytes);

struct kvw_directory_layout {
	uint64_t block_words;
	uint64_t buckets;
	uint32_t bucket_count;
	uint64_t bytes;
};
void kvw_directory_layout(uint32_t blocks, struct kvw_directory_layout *out);

/* ------------------------------------------------------------------ tables */

/* A block that the client presents. */
struct kvw_block_ref {
	int32_t id;
	uint32_t zero;
	uint64_t generation;
};
static_assert(sizeof(struct kvw_block_ref) == 16, "block ref");

/* What decides the layout of a tables segment; both sides compute it from the attach message. */
struct kvw_tables_params {
	uint32_t rows;       /* sequences whose arrays exist at once */
	uint32_t row_blocks; /* width of a row */
	uint32_t block_tokens;
	uint32_t hash_bytes;
	uint32_t slots;
	uint64_t slot_bytes; /* a multiple of KVW_PAGE_BYTES */
};

/*
 * Byte offsets, each area page-aligned. A row of an area lies at area + row * stride of that area:
 *   ids          i32 [rows][row_blocks]               the block table
 *   generations  u64 [rows][row_blocks]
 *   hashes       u8  [rows][row_blocks][hash_bytes]   of full blocks, written before OPEN and PUBLISH
 *   tokens       u32 [rows][row_blocks * block_tokens]
 *   lengths      u32 [4][rows]                        reserved, staged, settled, committed
 *   returns      struct kvw_block_ref [KVW_RETURN_ENTRIES]
 *   counters     one page, the client's own
 *   oplog        [reserved] empty
 *   slots        u8 [slots][slot_bytes]               batch arrays, the client's own
 */
struct kvw_tables_layout {
	uint64_t ids;
	uint64_t generations;
	uint64_t hashes;
	uint64_t tokens;
	uint64_t lengths;
	uint64_t returns;
	uint64_t counters;
	uint64_t oplog;
	uint64_t slots;
	uint64_t bytes;
};
/* -KVP_ELIMIT when a parameter is above its limit or the segment would pass KVW_MAX_TABLES_BYTES, -EINVAL on 0. */
int kvw_tables_layout(const struct kvw_tables_params *params, struct kvw_tables_layout *out);

/* ------------------------------------------------------------------ answers */

/*
 * struct kvw_answer[n], n as asked for by the attach, and nothing else. Its own segment, and not a part of
 * the tables, because the daemon's loop writes it: whoever may write a file can have the kernel hold its
 * inode (a long fallocate()), for which write(2) waits, or take away pages (a punched hole), for which a
 * mapped store waits. This one is populated, mapped by the daemon and sealed with F_SEAL_FUTURE_WRITE before
 * anybody gets a descriptor: a store can neither fault nor wait.
 *
 * Where in it the answers of a record go is the client's choice (kvw_request.answers). What it has not read
 * yet it must not name again.
 */

/* One answered block: stored by the daemon before the completion that announces it. */
struct kvw_answer {
	int32_t id;
	uint32_t flags; /* KVW_ANSWER_* */
	uint64_t generation;
	uint64_t writer; /* session that wrote it; 0 for a fresh block */
	uint64_t step;   /* KVW_ANSWER_COMING: the writer's step */
};
static_assert(sizeof(struct kvw_answer) == 32, "answer");

#define KVW_ANSWER_MATCHED 1u   /* found by hash, referenced by the hold */
#define KVW_ANSWER_COMING 2u    /* matched, not complete yet: watch its block word */
#define KVW_ANSWER_DUPLICATE 4u /* publish: the hash was there; `id` is the canonical block */
/* Bits 8..15, OPEN, with KVW_ANSWER_COMING: the writer's timeline that reaches `step`. */
#define KVW_ANSWER_TIMELINE_SHIFT 8u

/* Bytes of the segment: whole pages. */
static inline uint64_t kvw_answers_bytes(uint32_t answers)
{
	const uint64_t bytes = (uint64_t)answers * sizeof(struct kvw_answer);

	return (bytes + KVW_PAGE_BYTES - 1) & ~(uint64_t)(KVW_PAGE_BYTES - 1);
}

/* ------------------------------------------------------------------ channel and timelines */

/*
 * Both are sealed with F_SEAL_FUTURE_WRITE once the client says that it has mapped them (MAPPED): its
 * mappings stay writable, but no hole can be punched any more, on whose end a load of the daemon's loop would
 * wait. Until then the daemon does not look at them.
 *
 * Request ring: the client posts, the daemon consumes. Completion ring: the reverse. Indices are free-running
 * u32; tail is released by the producer after the record, head by the consumer after its copy.
 */
struct kvw_request {
	uint32_t type; /* enum kvw_request_type */
	uint32_t row;
	uint64_t ticket; /* echoed by the completion */
	uint64_t hold;
	uint32_t first;
	uint32_t count;
	uint32_t timeline;
	uint32_t flags; /* KVW_REQUEST_* */
	uint64_t step;
	uint32_t want;    /* OPEN: blocks the row wants in all */
	uint32_t most;    /* OPEN: new blocks to grant at most */
	uint32_t answers; /* entry of the answers segment from which on the verb answers */
	uint32_t zero;    /* [reserved] */
};
static_assert(sizeof(struct kvw_request) == 64, "request");
static_assert(offsetof(struct kvw_request, step) == 40, "request");
static_assert(offsetof(struct kvw_request, answers) == 56, "request");

/*
 * The verbs. "answers" says what is answered for which block, from entry `answers` of the answers segment on;
 * "completes" says when a completion is posted.
 *
 * OPEN      row; count hashes in hashes[row]; first = most blocks to match; want = blocks the row wants in all;
 *           most = most new blocks to grant now. Matches the longest prefix, references it under a new hold,
 *           grants min(want - matched, most) blocks: all or nothing. Answers the row's first matched + granted.
 *           Always completes.
 * EXTEND    row, first, count: count more blocks, one answer each. Always completes.
 * LEASE     count: count blocks, one answer each. Always completes.
 * PUBLISH   row, first, count, hold, timeline, step: the blocks ids/generations/hashes[row][first ..) become findable when the
 *           timeline reaches the step; first must equal the hold's length; each adds one reference (to the canonical block)
 *           to the hold. One answer each: duplicates are told by KVW_ANSWER_DUPLICATE. Always completes.
 * TRUNCATE  hold, first: keeps the hold's first `first` references, drops the others at (timeline, step). Completes on error.
 * RELEASE   hold, timeline, step: drops the hold's references, last to first, when the step is reached. Completes on error.
 * RETURN    first, count, timeline, step: the leased blocks in returns[first ..) (modulo its size) are given up; they
 *           become free when the step is reached. Completes on error.
 * A step of 0 is always reached.
 */
#define KVW_REQUEST_TYPE_MAP(X)                                                                              \
	X(OPEN, 1)                                                                                           \
	X(EXTEND, 2)                                                                                         \
	X(LEASE, 3)                                                                                          \
	X(PUBLISH, 4)                                                                                        \
	X(TRUNCATE, 5)                                                                                       \
	X(RELEASE, 6)                                                                                        \
	X(RETURN, 7)

enum kvw_request_type {
#define KVW_REQUEST_TYPE_ENUM(name, number) KVW_REQUEST_##name = number,
	KVW_REQUEST_TYPE_MAP(KVW_REQUEST_TYPE_ENUM)
#undef KVW_REQUEST_TYPE_ENUM
};

/* OPEN: match blocks of other engines that are still PENDING (they are told as KVW_ANSWER_COMING). */
#define KVW_REQUEST_COMING 1u
/* Bits 8..15: plane set required (OPEN) or written (PUBLISH); 0 means 1, the main set. Others are [reserved]. */
#define KVW_REQUEST_PLANE_SET_SHIFT 8u

/* How many answers a record may be given at most. */
static inline uint64_t kvw_request_answers(const struct kvw_request *request)
{
	uint64_t match = request->first < request->count ? request->first : request->count;
	uint64_t all = match + request->most;

	if (request->type > KVW_REQUEST_PUBLISH)
		return 0;
	if (request->type != KVW_REQUEST_OPEN)
		return request->count;
	if (all > request->want)
		all = request->want;
	return all > match ? all : match;
}

struct kvw_completion {
	uint32_t type;
	int32_t status; /* 0, or a negative error */
	uint64_t ticket;
	uint64_t hold;    /* OPEN */
	uint32_t matched; /* OPEN: blocks matched. PUBLISH: duplicates */
	uint32_t granted; /* OPEN, EXTEND, LEASE: fresh blocks. PUBLISH: blocks published */
	/* -KVP_ENOBLOCKS, -KVP_EQUOTA: what the pool or the tenant has. */
	uint64_t free_blocks;
	uint64_t draining_blocks;
	uint64_t evictable_blocks;
	uint64_t limit; /* quota, or the blocks asked for */
};
static_assert(sizeof(struct kvw_completion) == 64, "completion");

/* One ring's words, each on a cache line of its own: producer and consumer never share one. */
struct kvw_ring_words {
	_Alignas(KVW_CACHE_LINE) _Atomic uint32_t tail; /* producer */
	_Alignas(KVW_CACHE_LINE) _Atomic uint32_t head; /* consumer */
};
static_assert(sizeof(struct kvw_ring_words) == 128, "ring words");

/* The channel: this header page, then requests, then completions, page-aligned. */
struct kvw_channel_header {
	uint32_t magic;
	uint32_t layout_version;
	uint64_t session;
	struct kvw_ring_words requests;
	struct kvw_ring_words completions;
	/* Daemon to client: -KVP_EREVOKED once the session is revoked, -KVP_EDEVICE once its device is lost; else 0. */
	_Alignas(KVW_CACHE_LINE) _Atomic int32_t revoked;
	/* Futex word: raised by the daemon after it has posted completions while `client_waiting` is set. */
	_Alignas(KVW_CACHE_LINE) _Atomic uint32_t completion_futex;
	/* Client to daemon: 1 while a thread waits on the futex. */
	_Alignas(KVW_CACHE_LINE) _Atomic uint32_t client_waiting;
	/*
	 * Client to daemon, cuda pools: 1 once its device's work has ended and nothing of the pool is mapped
	 * any more; never taken back. Stored last (release), also after a revocation. Its process then need
	 * not end for its blocks to be free.
	 */
	_Alignas(KVW_CACHE_LINE) _Atomic uint32_t drained;
};
static_assert(offsetof(struct kvw_channel_header, requests) == 64, "channel");
static_assert(offsetof(struct kvw_channel_header, completions) == 192, "channel");
static_assert(offsetof(struct kvw_channel_header, revoked) == 320, "channel");
static_assert(offsetof(struct kvw_channel_header, completion_futex) == 384, "channel");
static_assert(offsetof(struct kvw_channel_header, client_waiting) == 448, "channel");
static_assert(offsetof(struct kvw_channel_header, drained) == 512, "channel");
static_assert(sizeof(struct kvw_channel_header) <= KVW_PAGE_BYTES, "channel");

#define KVW_CHANNEL_REQUESTS ((uint64_t)KVW_PAGE_BYTES)
#define KVW_CHANNEL_COMPLETIONS                                                                              \
	(KVW_CHANNEL_REQUESTS + (uint64_t)KVW_RING_RECORDS * sizeof(struct kvw_request))
#define KVW_CHANNEL_BYTES                                                                                    \
	(KVW_CHANNEL_COMPLETIONS + (uint64_t)KVW_RING_RECORDS * sizeof(struct kvw_completion))
static_assert(KVW_CHANNEL_BYTES % KVW_PAGE_BYTES == 0, "channel");

/*
 * Timelines: word t lies at byte t * 64 of the page; a worker raises it with a release store when a step's work is done.
 *
 * Once the worker's process has ended, and none of its blocks is pending any more (KVW_BLOCK_PENDING in the directory), the daemon
 * stores KVW_TIMELINE_POISON into every word, and again while a device may still store steps over it. Whoever waits on a device for a step
 * then goes on, and finds out in the directory what became of the block: a block that still says PENDING after the wait was waited for
 * in earnest. The word itself can't tell that: see above.
 */
struct kvw_timelines {
	struct {
		_Alignas(KVW_CACHE_LINE) _Atomic uint64_t step;
	} line[KVW_TIMELINES];
};
static_assert(sizeof(struct kvw_timelines) == KVW_TIMELINES * KVW_CACHE_LINE, "timelines");

#endif
