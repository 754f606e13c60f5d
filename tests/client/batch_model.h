/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A step's arrays the naive way: every entry computed anew from the rows and lengths, with divisions and no memory of the last step.
 */
#ifndef KVPOOL_TEST_BATCH_MODEL_H
#define KVPOOL_TEST_BATCH_MODEL_H

#include <stdint.h>

#include <kvpool/kvpool.h>

struct model_row {
	const int32_t *ids; /* the row's blocks */
	uint32_t blocks;
	uint32_t before; /* tokens before this step */
	uint32_t tokens; /* query tokens of it */
};

struct model_params {
	uint32_t block_tokens;
	uint32_t width;
	uint32_t valid_tokens;
	uint32_t slot_bytes;
	uint32_t pad_rows;
	int32_t pad_id;
};

/* Compares every array of the view; fails the test at the first difference, naming array and index. */
void model_check(const struct model_params *params, const struct model_row *rows, uint32_t n,
		 const struct kvp_batch_view *view);

#endif
