/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walks over the keys that a query reads, in paged memory: a range of positions, or the blocks of a
 * selection.
 */
#ifndef KVPOOL_KERNELS_GQA_KEYS_H
#define KVPOOL_KERNELS_GQA_KEYS_H

#include "gqa_call.h"
#include "gqa_tile.h"

struct kvk_gqa_cursor {
	const struct kvk_gqa_call *call;
	const char *k, *v; /* of the KV head */
	const int32_t *table;
	const int32_t *ids;    /* the selection, or NULL */
	int32_t visible;       /* positions from here on are not read */
	int32_t position, end; /* what is left of the range, or of the selected block */
	int32_t entry, last;   /* of ids: next one, and where to stop */
	int32_t highest;       /* of ids before `entry` */
};

/* Starts at split `split` of `split_items`: positions, or entries of the selection. */
void kvk_gqa_cursor_begin(struct kvk_gqa_cursor *cursor, int32_t split, int32_t split_items);

/* From now on the walk doesn't stop at the end of the split. */
void kvk_gqa_cursor_pass(struct kvk_gqa_cursor *cursor);

/* The next keys, as many as a tile takes; fewer, down to none, where the walk ends. */
void kvk_gqa_cursor_next(struct kvk_gqa_cursor *cursor, struct kvk_gqa_keys *keys);

#endif
