/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvpool: a process's view of the KV cache pools that kvpoold owns.
 *
 * An engine connects, attaches to a pool (which maps the pool's memory into the process), opens sequences, writes and
 * reads KV through the plane views, and steps batches. libkvpool(3) explains; this header is the contract.
 *
 * Errors     Functions that can fail return 0 (or a count) or a negative number: a negative errno, or a negated code of
 *            kvpool/error.h. Out-parameters come last and are written only on success. kvp_last_error() has the details.
 * Parameters Input structs begin with `size` = sizeof as the caller compiled it. Shorter ones are extended by zeros, longer
 *            ones are accepted when the unknown tail is zero, else -E2BIG. Zero is the default of every field.
 * Threads    A client's calls are thread-safe, unless a comment says otherwise. A sequence, or a batch with its sequences, belongs
 *            to one thread at a time.
 * Waiting    Only calls with `timeout_ms` wait, at most that long (0: not at all, UINT32_MAX: for ever). Nothing else
 *            makes a system call, unless its comment says so, or allocates after its object exists.
 * fork()     In the child every handle is dead: its calls return -KVP_EFORKED, its memory is not mapped.
 * The library starts no thread but those of kvp_threads_create(), installs no signal handler, writes no log and never ends the process.
 */
#ifndef KVPOOL_KVPOOL_H
#define KVPOOL_KVPOOL_H

#include <stddef.h>
#include <stdint.h>

#include <kvpool/error.h>
#include <kvpool/version.h>

#ifdef __cplusplus
extern "C" {
#endif

#define KVP_API __attribute__((visibility("default")))
#define KVP_MUST_CHECK __attribute__((warn_unused_result))

struct kvp_client; /* a connection, and once attached an engine */
struct kvp_seq;    /* one request's tokens */
struct kvp_batch;  /* the arrays of a step */

/* Version of the library that runs, "major.minor.patch". */
KVP_API const char *kvp_version(void);
/* Name ("KVP_ENOBLOCKS", "EINVAL") and text of an error, whatever its sign. Static strings; never NULL. */
KVP_API const char *kvp_error_name(int error);
KVP_API const char *kvp_error_text(int error);

/* ------------------------------------------------------------------ connection */

struct kvp_connect_params {
	uint32_t size;
	uint32_t timeout_ms;  /* 0: 5,000 */
	const char *path;     /* NULL: $KVPOOL_SOCKET, then /run/kvpool/kvpoold.sock */
	const char *name;     /* shown to administrators; NULL: the program's name */
	uint64_t incarnation; /* 0: any; else -KVP_EINCARNATION when the daemon is another */
};

/* Connects and agrees on version and hash. params may be NULL. On success the caller owns *out: kvp_close(). */
KVP_API KVP_MUST_CHECK int kvp_connect(const struct kvp_connect_params *params, struct kvp_client **out);
/*
 * Ends the session, unmaps everything (views become invalid), frees the client, its batch and its sequences. Work that still
 * uses the memory must have ended; with a device this waits for the context's. No other thread may use the client. NULL is a no-op. Also right in a forked child.
 */
KVP_API void kvp_close(struct kvp_client *client);
/*
 * What went wrong in this thread's last failed call, one sentence with the thing, the value, the limit and the remedy.
 * Valid until the thread's next failing call. Never NULL.
 */
KVP_API const char *kvp_last_error(void);
/* Ids of the daemon's run and of this session; 0 in a dead handle. */
KVP_API uint64_t kvp_incarnation(const struct kvp_client *client);
KVP_API uint64_t kvp_session_id(const struct kvp_client *client);
/*
 * One load: 0 while the session stands; -KVP_EREVOKED, -KVP_EFORKED. Call before a step's result leaves the
 * engine. (A daemon's death is not seen here: blocks held stay valid; calls that need it say -KVP_EDAEMON.)
 */
KVP_API int kvp_check(const struct kvp_client *client);

/* ------------------------------------------------------------------ pools */

struct kvp_pool_info {
	uint32_t size;
	uint32_t pool;
	char name[64];
	uint32_t blocks;       /* ids run from 0 to blocks - 1; null and sink blocks included */
	uint32_t data_blocks;  /* that hold tokens */
	uint32_t block_tokens;
	uint32_t planes;
	uint64_t bytes;
	uint32_t block_major;  /* 1: a block is one record of all planes */
	uint32_t ready;        /* 0 while the daemon still populates it */
	uint32_t on_device;    /* 1: in a CUDA device's memory (known once it is ready): views have addresses of the device */
	uint32_t zero;
};
/* Geometry of pool `name` (NULL: the only one). Waits for the daemon's answer. Writes min(out->size, own size) bytes; set out->size. */
KVP_API KVP_MUST_CHECK int kvp_pool_info(struct kvp_client *client, const char *name, uint32_t timeout_ms,
					 struct kvp_pool_info *out);

struct kvp_identity {
	const char *key; /* "weights", "kv_dtype", "rope_theta", .. */
	const char *value;
};

#define KVP_ATTACH_LEASE_MARKS 1u /* take the three marks as given, 0 too */
#define KVP_ATTACH_EXACT 2u       /* identity also fixes the numerics: same kernels, same bits */
#define KVP_ATTACH_INDEX_SCALE 4u /* refuse a pool whose plane strides are not whole pages */

struct kvp_attach_params {
	uint32_t size;
	uint32_t flags;          /* KVP_ATTACH_* */
	const char *pool;        /* NULL: the only one */
	uint32_t timeout_ms;     /* 0: 10,000 */
	uint32_t max_seqs;       /* sequences open at once; 0: 256 */
	uint32_t max_seq_tokens; /* tokens of the longest; 0: 32,768 */
	uint32_t batch_tokens;   /* query tokens of one step at most; 0: max_seqs * (1 + drafts) */
	uint32_t drafts;         /* speculative tokens a sequence and step */
	uint32_t slots;          /* steps in flight, 2..16; 0: 2 */
	uint32_t hash_bytes;     /* of the engine's own hashes, 1..64; 0: the library hashes tokens (SHA-256, 32) */
	uint32_t lease_low;      /* blocks: ask for more below this ... */
	uint32_t lease_critical; /* ... and wake the daemon below this */
	uint32_t lease_high;     /* ... give back above this */
	uint32_t grace_ms;       /* reserved: 0 */
	uint32_t identity_count;
	const struct kvp_identity *identity; /* what the blocks depend on; engines that differ in it share nothing */
	/*
	 * Driver context that a cuda pool is mapped in and that the engine's streams are of, alive until kvp_close(). NULL: the
	 * thread's current one; without one the primary context of the pool's device, which is then the library's until kvp_close().
	 * With a host pool NULL means none: a batch's arrays can then not be staged.
	 */
	void *cuda_context;
};
/* Makes the client an engine of a pool and maps pool, tables and rings. Once a client. Waits for the daemon. */
KVP_API KVP_MUST_CHECK int kvp_attach(struct kvp_client *client, const struct kvp_attach_params *params);

/* Numbers of roles, dtypes and layouts (as ipc/geometry.h has them on the wire). */
enum kvp_role { KVP_ROLE_LATENT = 1, KVP_ROLE_K = 2, KVP_ROLE_V = 3, KVP_ROLE_INDEX_K = 4, KVP_ROLE_OPAQUE = 5 };
enum kvp_dtype {
	KVP_DTYPE_BF16 = 1,
	KVP_DTYPE_F16 = 2,
	KVP_DTYPE_F32 = 3,
	KVP_DTYPE_E4M3 = 4,
	KVP_DTYPE_FP8_V32 = 5, /* 656-byte row: 512 e4m3, 4 f32 scales, 64 bf16 */
	KVP_DTYPE_U8 = 6
};
enum kvp_layout { KVP_LAYOUT_NATIVE = 0, KVP_LAYOUT_NHD = 1, KVP_LAYOUT_HND = 2 };

/* A plane as a tensor over all block ids. Valid until kvp_close(). Of a cuda pool `data` is an address of the device. */
struct kvp_view {
	uint32_t size;
	uint32_t dtype;     /* enum kvp_dtype; rows of FP8_V32 are given as U8 [blocks, tokens, 1, 656] */
	void *data;         /* element of block 0 */
	int64_t shape[4];   /* NHD: blocks, tokens, heads, dim. HND: blocks, heads, tokens, dim. opaque: blocks, 1, 1, bytes */
	int64_t strides[4]; /* in elements */
	uint32_t layer;
	uint32_t role;
	uint32_t index_scale; /* strides[0] in pages of this plane; 0 when it is not whole */
	uint32_t zero;
};
/*
 * View of plane `plane` (0 .. planes - 1). An HND view of NHD bytes, or the reverse, is given only when heads == 1: the bytes
 * are then the same; else -EINVAL.
 */
KVP_API KVP_MUST_CHECK int kvp_plane_view(const struct kvp_client *client, uint32_t plane, enum kvp_layout layout,
					  struct kvp_view *out);
/* Index of the plane of (role, layer), or -ENOENT. */
KVP_API KVP_MUST_CHECK int kvp_plane_find(const struct kvp_client *client, enum kvp_role role, uint32_t layer);
/* Id of this engine's sink block: writable, never shared, outside the quota; where padding may write. */
KVP_API KVP_MUST_CHECK int kvp_sink_block(const struct kvp_client *client);

/* ------------------------------------------------------------------ steps */

/* Next step number of a timeline (0..7), counted from 1. */
KVP_API uint64_t kvp_step_next(struct kvp_client *client, uint32_t timeline);
/* The work of all steps up to `step` on the timeline is done: a release store that the daemon and other threads see. */
KVP_API void kvp_step_done(struct kvp_client *client, uint32_t timeline, uint64_t step);
/*
 * The same when `stream` (a stream handle of the driver, of the attach's context) comes to it: everything queued on it before is part of the
 * step. One timeline, one stream: a step must be above the last one given for the timeline, else -EINVAL. -KVP_ESTATE: the client has no
 * context, or the stream is being captured (a replayed graph would store the same step again: call this behind each launch of the
 * graph). -KVP_EBACKLOG: too many steps are queued on a device that can't store words by itself. Calls the driver; never waits.
 */
KVP_API KVP_MUST_CHECK int kvp_step_done_on(struct kvp_client *client, uint32_t timeline, uint64_t step, void *stream);
/* Last step done. */
KVP_API uint64_t kvp_step_reached(const struct kvp_client *client, uint32_t timeline);

/* ------------------------------------------------------------------ sequences */

#define KVP_EXTRA_SALT 1u
#define KVP_EXTRA_ADAPTER 2u
#define KVP_EXTRA_MULTIMODAL 3u
/* Of one request. Longer things go in as a digest. */
#define KVP_MAX_EXTRAS 16u
#define KVP_MAX_EXTRA_BYTES 1024u
struct kvp_extra_key {
	uint32_t domain; /* KVP_EXTRA_* */
	uint32_t length;
	const void *bytes;
};

#define KVP_OPEN_COMING 1u /* also match blocks that another engine is still writing: kvp_seq_ready(), kvp_seq_wait_on() */

struct kvp_open_request {
	uint32_t size;
	uint32_t flags; /* KVP_OPEN_* */
	/* Either the prompt's tokens (hash_bytes was 0), or hashes of its full blocks, chained by the engine. Copied. */
	const uint32_t *tokens;
	const uint8_t *hashes; /* [hash_count][hash_bytes] */
	uint32_t token_count;  /* of the prompt, with hashes too */
	uint32_t hash_count;
	uint32_t max_cached_tokens; /* match at most these; 0: token_count - 1, UINT32_MAX: all */
	uint32_t reserve_tokens;    /* blocks for this many tokens behind the match, at once; 0: to the prompt's end, UINT32_MAX: none */
	uint32_t extra_count;
	uint32_t zero;
	const struct kvp_extra_key *extras; /* folded into every block hash */
};

/*
 * Opens n sequences in one round trip. Each is all or nothing: the matched prefix is pinned and the asked blocks are leased,
 * or nothing is held. results[i] is 0, or why request i failed (-KVP_ENOBLOCKS, -KVP_EQUOTA, -KVP_ELIMIT, ..) and
 * out[i] is then NULL. Returns 0 when every request was answered (look at results), else the error of the whole call, with nothing open.
 * Thread: the sequences belong to the caller's thread.
 */
KVP_API KVP_MUST_CHECK int kvp_open(struct kvp_client *client, const struct kvp_open_request *requests, uint32_t n,
				    uint32_t timeout_ms, int *results, struct kvp_seq **out);
/*
 * The same in two halves: post on arrival, collect when the scheduler comes round. A posted sequence may only be collected or closed.
 * Post wakes a sleeping daemon (a system call). -KVP_EBACKLOG: ring full; -KVP_ELIMIT: max_seqs are open.
 */
KVP_API KVP_MUST_CHECK int kvp_open_post(struct kvp_client *client, const struct kvp_open_request *request,
					 struct kvp_seq **out);
/* 0: open. -EAGAIN: not answered within timeout_ms. Other errors: not open; close it. */
KVP_API KVP_MUST_CHECK int kvp_open_collect(struct kvp_seq *seq, uint32_t timeout_ms);

/*
 * Gives everything back: references drop, and blocks become reusable, when the last launched step that used them is done. Wakes nobody.
 * -KVP_EBACKLOG: the ring is full, the sequence stays as it was; try again. NULL: 0.
 */
KVP_API KVP_MUST_CHECK int kvp_seq_close(struct kvp_seq *seq);

/* The four lengths, in tokens: reserved >= staged >= settled >= committed. */
struct kvp_seq_info {
	uint32_t size;
	uint32_t row;
	uint32_t prompt_tokens;
	uint32_t cached_tokens; /* matched at open: the KV of these is there */
	uint32_t reserved;      /* tokens the row has blocks for */
	uint32_t staged;        /* given to launched steps */
	uint32_t settled;       /* known and kept */
	uint32_t committed;     /* hashed and sent for publishing */
	uint32_t blocks;        /* entries of the row */
	uint32_t duplicates;    /* of its published blocks, whose hash was there already */
};
KVP_API KVP_MUST_CHECK int kvp_seq_info(const struct kvp_seq *seq, struct kvp_seq_info *out);

#define KVP_BLOCK_MATCHED 1u   /* found at open */
#define KVP_BLOCK_COMING 2u    /* found at open, was not complete then */
#define KVP_BLOCK_PUBLISHED 4u /* written here and published */
struct kvp_block_info {
	uint32_t size;
	int32_t id;
	uint64_t generation;
	uint64_t writer; /* session that wrote it; own for own blocks */
	uint32_t flags;  /* KVP_BLOCK_* */
	uint32_t zero;
};
KVP_API KVP_MUST_CHECK int kvp_seq_block(const struct kvp_seq *seq, uint32_t index, struct kvp_block_info *out);
/*
 * The row: block ids in order, `kvp_seq_info.blocks` of them. Valid until the sequence is closed; entries below staged don't change while
 * steps run that kvp_seq_stage() gave. (Steps of a batch have copies in their slot: a duplicate's entry may move to the block that was
 * there first when the next step is prepared; the id that a running step has stays its own until that step is done.)
 */
KVP_API const int32_t *kvp_seq_blocks(const struct kvp_seq *seq);
/*
 * 1: every matched block is complete. 0: some are still written. -KVP_ELOST: a writer died; close the sequence, open it again. Asked after a step
 * that read such blocks has ended, 0 is as good as 1: that step has waited for them on the device.
 */
KVP_API KVP_MUST_CHECK int kvp_seq_ready(const struct kvp_seq *seq);
/*
 * For a sequence that was opened with KVP_OPEN_COMING: behind this call `stream` stands until every matched block that other engines still write is
 * written, or its writer dead; nothing when all are complete. Call it when the step was staged, before its kernels are queued; kvp_batch_stage() does it
 * by itself. A dead writer ends the wait, and what the step then computes is void: kvp_seq_settle() and kvp_batch_settle() refuse it by
 * -KVP_ELOST, and before a token leaves by another way kvp_seq_ready() says so. -EAGAIN: the device can't wait, nothing is queued; wait by
 * kvp_seq_ready(). That is so where streams can't wait for 64-bit words or memory can't be registered to be read only, when the open had no time left to
 * ask the daemon (kvp_open_collect() with a timeout asks again), and while an own step that was published has no end queued. -KVP_ESTATE: no step
 * of the sequence runs, or the stream is being captured. Calls the driver; never waits.
 */
KVP_API KVP_MUST_CHECK int kvp_seq_wait_on(struct kvp_seq *seq, void *stream);

/* Room for `tokens` more behind staged, from the lease. Never waits: -KVP_ELEASE and nothing changed when it holds too few. */
KVP_API KVP_MUST_CHECK int kvp_seq_reserve(struct kvp_seq *seq, uint32_t tokens);
/* The same from the pool, for the chunks of a prefill; waits for the daemon. All or nothing. */
KVP_API KVP_MUST_CHECK int kvp_seq_extend(struct kvp_seq *seq, uint32_t tokens, uint32_t timeout_ms);
/*
 * The next `tokens` go to step `step`: staged grows. -KVP_ESTATE when not reserved, or when a step of the sequence still runs on
 * another timeline: what uses a sequence must end in one order.
 */
KVP_API KVP_MUST_CHECK int kvp_seq_stage(struct kvp_seq *seq, uint32_t tokens, uint32_t timeline, uint64_t step);
/*
 * The outcome: of the tokens staged and not settled, the first `accepted` stand (tokens[accepted] are their ids; NULL for prompt
 * tokens given at open), and when `last` is not 0 the staged rest is cut. Blocks that became full are hashed and published with
 * (timeline, step) of the step that wrote them. Posts a record; never rings. -KVP_ELOST, and nothing changed: a block that the step may have read was never
 * completed by its writer; close the sequence, open it again.
 */
KVP_API KVP_MUST_CHECK int kvp_seq_settle(struct kvp_seq *seq, uint32_t accepted, const uint32_t *tokens, int last,
					  uint32_t timeline, uint64_t step);
/* The same for an engine with hashes of its own: hashes[] of the blocks that become full by it. */
KVP_API KVP_MUST_CHECK int kvp_seq_settle_hashed(struct kvp_seq *seq, uint32_t accepted, const uint8_t *hashes,
						 uint32_t hash_count, int last, uint32_t timeline, uint64_t step);
/*
 * Cuts the sequence to `tokens` (<= settled); staged becomes the same, blocks behind are given up. A published block is immutable: when the cut
 * goes through one, its reference is dropped, settled becomes the block's beginning (kvp_seq_info()), and a fresh block is leased in its
 * place, for the caller to write again from there (-KVP_ELEASE when neither the lease nor what is cut has one). -KVP_EBACKLOG: the ring is full, or
 * the block's publish is still on its way: kvp_sync(), then again. Both change nothing.
 */
KVP_API KVP_MUST_CHECK int kvp_seq_truncate(struct kvp_seq *seq, uint32_t tokens);
/* A second sequence with the same tokens up to the last full block; waits for the daemon. */
KVP_API KVP_MUST_CHECK int kvp_seq_fork(struct kvp_seq *seq, uint32_t timeout_ms, struct kvp_seq **out);
/* From now on nothing of it is published. */
KVP_API KVP_MUST_CHECK int kvp_seq_stop_publish(struct kvp_seq *seq);

/* Full blocks of the prompt that the directory shows now: a hint, no round trip. Returns blocks, or -EAGAIN ("ask": open). */
KVP_API KVP_MUST_CHECK int kvp_probe(struct kvp_client *client, const struct kvp_open_request *request);

/* ------------------------------------------------------------------ the lease */

struct kvp_lease_info {
	uint32_t size;
	uint32_t blocks;   /* free for reserve now */
	uint32_t coming;   /* asked for */
	uint32_t draining; /* given up by sequences, their steps not done */
	uint32_t low, critical, high;
	uint32_t seconds_left; /* at the pace of the last seconds; UINT32_MAX when nothing is taken */
};
KVP_API KVP_MUST_CHECK int kvp_lease_info(struct kvp_client *client, struct kvp_lease_info *out);
/* Waits until the lease holds `blocks` (at most lease_high). */
KVP_API KVP_MUST_CHECK int kvp_lease_wait(struct kvp_client *client, uint32_t blocks, uint32_t timeout_ms);
/* Waits until the daemon has taken every record posted so far. */
KVP_API KVP_MUST_CHECK int kvp_sync(struct kvp_client *client, uint32_t timeout_ms);

/* ------------------------------------------------------------------ batches */

#define KVP_PAD_ZERO 0u  /* the null block */
#define KVP_PAD_MINUS 1u /* -1 */
#define KVP_PAD_SINK 2u  /* the engine's sink block */

/* How a step's arrays get to the device: kvp_batch_stage(). */
#define KVP_STAGING_NONE 0u
#define KVP_STAGING_ROWS 1u  /* rows stay on the device, a step sends what changed; needs the library's kernels for a GPU */
#define KVP_STAGING_WHOLE 2u /* a slot's arrays, whole, by one copy */

struct kvp_batch_params {
	uint32_t size;
	uint32_t max_seqs;     /* rows; 0: the attach's */
	uint32_t max_tokens;   /* query tokens of a step; 0: the attach's batch_tokens */
	uint32_t width;        /* columns of the block table; 0: blocks of max_seq_tokens */
	uint32_t valid_tokens; /* tokens of a block of n_valid; 0: block_tokens */
	uint32_t slot_bytes;   /* of a slot mapping entry: 4 or 8; 0: 4 */
	uint32_t pad_table;    /* KVP_PAD_*: block_table behind a row's blocks */
	uint32_t pad_rows;     /* rows behind the batch are padded up to this many: length 0, slot -1; 0: none */
	uint32_t staging;      /* KVP_STAGING_*; other than NONE needs the attach's context and allocates memory of its device */
	uint32_t zero;
};
/* The engine's batch (one a client). Its arrays lie in the tables segment, so that a pinned mapping serves every step. */
KVP_API KVP_MUST_CHECK int kvp_batch_create(struct kvp_client *client, const struct kvp_batch_params *params,
					    struct kvp_batch **out);
/* Its steps may still run; the next kvp_batch_create() says -KVP_ESLOTS until they are done. */
KVP_API void kvp_batch_destroy(struct kvp_batch *batch);
/*
 * Who is in it, in this order, from the next step on. Rows are rebuilt where the order changed. After a member was closed the other
 * calls say -KVP_ESTATE until this one has been made without it.
 */
KVP_API KVP_MUST_CHECK int kvp_batch_set(struct kvp_batch *batch, struct kvp_seq *const *seqs, uint32_t n);

/* One step's arrays. All int32 unless said; addresses of a slot are fixed for the batch's life. B rows, T query tokens, P pages. */
struct kvp_batch_view {
	uint32_t size;
	uint32_t slot;
	uint32_t rows;       /* B, padding rows included */
	uint32_t tokens;     /* T */
	uint32_t pages;      /* P */
	uint32_t table_width;
	uint32_t max_kv_len;
	uint32_t slot_bytes;
	int32_t *block_table;  /* [B, table_width]: ids, then the padding */
	int32_t *kv_lens;      /* [B] tokens attended, this step's included */
	int32_t *qo_lens;      /* [B] query tokens */
	int32_t *qo_offset;    /* [B] position of the first query token; -1 on padding rows */
	int32_t *cu_q;         /* [B + 1] prefix sums of qo_lens */
	int32_t *cu_kv;        /* [B + 1] prefix sums of kv_lens */
	void *slot_mapping;    /* [T] id * block_tokens + offset, slot_bytes each; -1 on padding */
	int32_t *page_list;    /* [P] the rows' used ids, end to end */
	int32_t *page_indptr;  /* [B + 1] */
	int32_t *n_valid;      /* [T] blocks of valid_tokens that a query token sees */
};

/* Reserves room for tokens[i] more (NULL: 1 each) in every sequence, all or none: -KVP_ELEASE. */
KVP_API KVP_MUST_CHECK int kvp_batch_reserve(struct kvp_batch *batch, const uint32_t *tokens);
/*
 * Stages tokens[i] (NULL: 1 each) of every sequence for (timeline, step) and brings the arrays of a free slot up to date: only what
 * changed since this slot's last use is written. -KVP_ESLOTS: every slot's step is still running. The slot is free again when
 * the timeline reaches the step.
 */
KVP_API KVP_MUST_CHECK int kvp_batch_begin(struct kvp_batch *batch, const uint32_t *tokens, uint32_t timeline,
					   uint64_t step, struct kvp_batch_view *out);
/*
 * kvp_seq_settle() for every sequence of the batch, all or none (-KVP_ELOST too: kvp_seq_ready() says which; close it, kvp_batch_set() without it): accepted[i] (NULL: 1 each); ids of all accepted tokens end to end (NULL as there).
 * The staged rest of a sequence is cut when (timeline, step) is the last step that it was staged for.
 */
KVP_API KVP_MUST_CHECK int kvp_batch_settle(struct kvp_batch *batch, const uint32_t *accepted, const uint32_t *tokens,
					    uint32_t timeline, uint64_t step);

/*
 * Queues on `stream` what brings the arrays of the step begun last to the device. In *out they have addresses of the device, the same at every
 * step, so that kernels in a captured graph find them; the numbers are the step's. Rows and tokens behind the step's, as far as any earlier
 * step had some, are padding: length 0, slot -1, pad_table; a graph that was captured with more rows can be replayed. The slot is free
 * again when the stream has run this. All kernels of the step follow on the same stream, then kvp_step_done_on(). A step on another stream than the
 * one before is held back on the device until that one is done; -KVP_ESTATE when its kvp_step_done_on() was not called yet, when no step was
 * begun, and when the stream is being captured (stage before the capture, and before each launch of the graph). Matched blocks that other
 * engines still write are waited for on the device, -EAGAIN where that can't be (kvp_seq_wait_on()); -KVP_ELOST: one of them was lost. -EIO and other errors of the
 * driver: the step was not staged; calling it again is right. Calls the driver; never waits, nor does it allocate.
 */
KVP_API KVP_MUST_CHECK int kvp_batch_stage(struct kvp_batch *batch, void *stream, struct kvp_batch_view *out);

struct kvk_prep_plan_part; /* kvpool/prep.h */

#define KVP_CORRECT_NEWEST 1u /* n_valid of a padding row is 0 instead of 1; there are no plans */
struct kvp_correct_params {
	uint32_t size;
	uint32_t flags;      /* KVP_CORRECT_* */
	void *stream;        /* may be in a capture */
	const int32_t *lens; /* [rows] of the device: lengths as they turned out; NULL: they stand in the view's kv_lens */
	/* Live parts of plans, on the host; their arrays are the device's. At most 8. */
	const struct kvk_prep_plan_part *parts;
	uint32_t part_count;
	uint32_t rows; /* to correct; 0: all of the staged step */
};
/*
 * Queues one kernel that puts right what depends on lengths in the arrays staged last: kv_lens become min(lens, staged), and slot_mapping,
 * n_valid, cu_kv and the parts' arrays follow, by the rules of kvk_prep_correct() over the batch's own block table. A token before position
 * 0 gets slot -1. Twice gives the same. qo_offset, page lists and indptr stay: lengths only shrink. -ENOENT: a part lacks an array that it must
 * have; -ERANGE: an array has neither a row for each request of the part nor one for each of its tokens; then nothing is queued. -KVP_ESTATE: no
 * step was staged. Calls the driver; never waits.
 */
KVP_API KVP_MUST_CHECK int kvp_batch_correct_lens(struct kvp_batch *batch, const struct kvp_correct_params *params);

/* ------------------------------------------------------------------ threads for kernels */

struct kvk_threads; /* kvpool/kernels.h */

struct kvp_threads_params {
	uint32_t size;
	uint32_t flags;       /* 0 */
	uint32_t count;       /* tasks at once, the calling thread's included; 0: one a CPU that the process may use */
	uint32_t spin_us;     /* how long a thread without work spins before it sleeps, to 1,000,000; 0: 100, or 1 when there are more than CPUs */
	const uint32_t *cpus; /* [count - 1] where each of the other threads is pinned, or NULL: nowhere. The calling thread is left alone */
};
/*
 * Starts count - 1 threads and gives them, with the calling one, in the form that kernels take: `run` may be called from any thread.
 * Called while a round already runs, from inside a task too, or in a forked child, it does all tasks on the calling thread. All signals
 * are blocked in the threads. params may be NULL. On success the caller owns *out: kvp_threads_destroy(). Makes system calls. -EAGAIN: the
 * system gives no more threads; -EINVAL: a CPU that can't be had; nothing is left behind then.
 */
KVP_API KVP_MUST_CHECK int kvp_threads_create(const struct kvp_threads_params *params, const struct kvk_threads **out);
/* Ends the threads and waits for them; no round may run. NULL is a no-op. Also right in a forked child. */
KVP_API void kvp_threads_destroy(const struct kvk_threads *threads);

#ifdef __cplusplus
}
#endif

#endif
