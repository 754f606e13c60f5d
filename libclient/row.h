/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A row of the tables and the sequence that uses it.
 *
 * A row outlives its sequence: the daemon reads a row's hashes, ids and generations when it takes a PUBLISH, and until that is answered
 * nobody knows which of the row's blocks became the pool's and which stayed ours. So a closed row waits, CLOSING, for its last answer; there are
 * twice as many rows as sequences, so that a new one seldom waits.
 *
 *   FREE -> OPENING -> OPEN -> CLOSING -> FREE
 *              |-> FAILED -----------------^
 *              `-> CLOSING (closed before its answer came)
 *
 * positions of a row:  [0, matched)       the pool's, found at open
 *                      [matched, acked)   published, the answer is here
 *                      [acked, posted)    published, the answer is on its way
 *                      [posted, full)     hashed, the record found no room yet
 *                      [full, blocks)     ours
 */
#ifndef KVPOOL_LIBCLIENT_ROW_H
#define KVPOOL_LIBCLIENT_ROW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include <kvpool/kvpool.h>

#include "ipc/hash.h"

enum kvc_row_state { KVC_ROW_FREE, KVC_ROW_OPENING, KVC_ROW_OPEN, KVC_ROW_FAILED, KVC_ROW_CLOSING };

/* Notes of other threads to a sequence's own. */
#define KVC_INBOX_EXTENDED 1u  /* an extend was answered */
#define KVC_INBOX_DUPLICATE 2u /* a block has a canonical copy that the row could move to */
#define KVC_INBOX_REFUSED 4u   /* a publish was refused */

/* Two cache lines a sequence, in an array: what a step touches. The owner's thread alone, but for `inbox` and `state`. */
struct kvp_seq {
	/* First line: reserve and begin. */
	_Alignas(64) struct kvp_client *client;
	int32_t *ids;       /* its row of the block table */
	uint64_t stamp;     /* new whenever entries below `blocks` may have changed */
	uint64_t last_step; /* last launched use, on last_timeline; 0: none */
	uint32_t staged;
	uint32_t reserved; /* blocks * block_tokens */
	uint32_t blocks;
	uint32_t tail_start; /* first token of the block that `tail_id` names: where the next token goes */
	int32_t tail_id;
	uint32_t tail_pages; /* blocks up to and with that one; 0: the tail is not known */
	uint32_t row;
	uint8_t last_timeline;
	uint8_t state; /* enum kvc_row_state; changed under the lock */
	_Atomic uint8_t inbox;
	uint8_t coming; /* 1: matched blocks were not complete when it was last looked (coming.h) */
	/* Second line: settle. */
	_Alignas(64) uint32_t *tokens;
	uint64_t
		row_step; /* last launched step that may read the row itself: one that kvp_seq_stage() gave; 0: none */
	uint32_t settled;
	uint32_t full_end; /* settled beyond this: a block became full */
	uint32_t known;    /* leading entries of tokens[] that the caller has given */
	uint32_t prompt;
	uint32_t member; /* 1 + position in the batch; 0: not in it */
	uint32_t block_tokens;
};
_Static_assert(sizeof(struct kvp_seq) == 128, "two cache lines");

/*
 * One position of a row. The tables hold a copy of id and generation, which the daemon reads; that copy is never read here as a number to index with,
 * because other processes map it too.
 */
#define KVC_CELL_MATCHED 1u
#define KVC_CELL_COMING 2u
#define KVC_CELL_PUBLISHED 4u
#define KVC_CELL_DUPLICATE                                                                                   \
	8u /* canonical_* name the block that holds the reference; the row still has the own copy */
struct kvc_cell {
	uint64_t generation;
	uint64_t canonical_generation;
	uint64_t writer; /* session */
	uint64_t step;   /* that wrote it, on `timeline`; of matched ones only where they are coming */
	int32_t id;
	int32_t canonical_id;
	uint16_t flags;
	uint8_t timeline;
	uint8_t zero[5];
};

/* Records that found no room in the ring. */
#define KVC_OWES_PUBLISH 1u
#define KVC_OWES_RELEASE 2u

#define KVC_MAX_EXTRAS KVP_MAX_EXTRAS
#define KVC_MAX_EXTRA_BYTES KVP_MAX_EXTRA_BYTES

/* The part of a row that steps seldom touch. Under the client's lock, but for its end. */
struct kvc_row {
	uint64_t hold;
	uint32_t matched;
	uint32_t acked;
	uint32_t posted;
	uint32_t full;
	uint32_t pending;    /* publishes on their way */
	uint32_t duplicates; /* so far */
	uint32_t swaps;      /* positions with KVC_CELL_DUPLICATE */
	uint32_t swap_first; /* none of them lies before */
	int status;          /* of the open; then of the last refused publish */
	bool stopped;        /* nothing more is published */
	bool opening;        /* an OPEN is on its way */
	bool extending;      /* an EXTEND is on its way */
	int extend_status;
	uint32_t extended;  /* granted blocks behind the row's that its sequence has not taken yet */
	uint32_t asked_new; /* OPEN: most blocks to grant; and wanted in all */
	uint32_t asked_all;
	uint8_t owes;
	int32_t owed_next;
	int32_t open_next;   /* kvp_open(): the rows of one call */
	uint32_t open_index; /* and which request it is */
	uint64_t refused[4]; /* free, draining, evictable blocks, limit, as the daemon said with an error */
	/* The owner's, without the lock. */
	uint32_t hashed; /* leading blocks whose hashes lie in the tables */
	uint32_t prompt_cached;
	struct kvw_hasher *hasher;
	uint32_t extra_count;
	struct kvw_extra_key extras[KVC_MAX_EXTRAS];
	uint8_t extra_bytes[KVC_MAX_EXTRA_BYTES];
};

#endif
