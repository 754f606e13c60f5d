/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the host preparation shares: how a refusal is put down, checks of sizes, counts and arrays, and the inner
 * loops, one table a vector level (prep_loops.c).
 */
#ifndef KVPOOL_KERNELS_PREP_H
#define KVPOOL_KERNELS_PREP_H

#include <kvpool/prep.h>

#include <stdbool.h>

/* floor(id * scale / divisor) of non-negative ids, reduced to its lowest terms. */
struct kvk_prep_ratio {
	int64_t scale, divisor;
	int32_t none; /* what -1 becomes */
	/*
	 * floor(n / divisor) = n * magic >> shift for 0 <= n < 2^31: with 2^l >= divisor, magic = floor(2^(31 + l) /
	 * divisor) + 1 and shift = 31 + l the error of magic stays below what could reach the next integer. magic 0:
	 * the divisor is 2^shift.
	 */
	uint32_t magic, shift;
};

/* How many entries of sequence i's row are used; it may be no count that the row has. */
static inline int32_t kvk_prep_count(const struct kvk_prep_block_ids_params *p, int32_t i)
{
	int32_t count = p->num_blocks ? p->num_blocks[i] : p->row_width;

	return p->most && p->most[i] < count ? p->most[i] : count;
}

static inline int64_t kvk_prep_row(const struct kvk_prep_block_ids_params *p, int32_t i)
{
	return p->row_of ? p->row_of[i] : i;
}

struct kvk_prep_ops {
	/*
	 * All rows of prepared parameters, right if every id * ratio->scale is below 2^31. Returns the largest of the
	 * ids' 32 bits plus 1: 0 for -1; above 2^31 when an id is below -1; the largest id plus 1 otherwise.
	 */
	uint32_t (*block_ids)(const struct kvk_prep_block_ids_params *p, const struct kvk_prep_ratio *ratio);
	/* first, first + 1, ... */
	void (*count_up32)(int32_t *out, int64_t first, int64_t count);
	void (*count_up64)(int64_t *out, int64_t first, int64_t count);
	void (*fill)(int32_t *out, int32_t value, int64_t count);
};

/* Those of the process's level; plain C where $KVPOOL_KERNELS names none that can be had. */
const struct kvk_prep_ops *kvk_prep_ops(void);

/* Puts down what was refused, and returns `code`. `fault` may be NULL. */
int kvk_prep_refuse(struct kvk_prep_fault *fault, int code, const char *name, int64_t index, int64_t value,
		    int64_t limit);

/* -EINVAL unless value >= least. */
int kvk_prep_at_least(struct kvk_prep_fault *fault, const char *name, int64_t value, int64_t least);
/* -EINVAL for bits of flags that are not known. */
int kvk_prep_flags(struct kvk_prep_fault *fault, uint32_t flags, uint32_t known);
int kvk_prep_slot_bytes(struct kvk_prep_fault *fault, uint32_t slot_bytes);
/* -EINVAL for NULL. */
int kvk_prep_given(struct kvk_prep_fault *fault, const char *name, const void *array);
/*
 * An array of [rows, columns] int32_t: its default stride is filled in. -EINVAL for NULL or a negative stride,
 * -EOVERFLOW when an element's address does not fit.
 */
int kvk_prep_table(struct kvk_prep_fault *fault, const char *name, const void *array, int64_t rows,
		   int64_t columns, int64_t *stride);
/* Adds up counts[batch]. -ERANGE for a negative one, -EOVERFLOW past 2^31 - 1, -ENOSPC past `room` of `out_name`. */
int kvk_prep_sum(struct kvk_prep_fault *fault, const char *name, const int32_t *counts, int32_t batch,
		 const char *out_name, int64_t room, int32_t *out_sum);

/* ceil(max(tokens, 0) / page_tokens) */
static inline int32_t kvk_prep_pages(int32_t tokens, int32_t page_tokens)
{
	return tokens <= 0 ? 0 : (tokens - 1) / page_tokens + 1;
}

/*
 * Slots of the query tokens of one request whose positions are first, first + 1, ...: a table row with pages of
 * page_tokens. A position below 0 is 0. One at or past `end` is the last one that the row has, or, with `turn`, has
 * its own offset in the row's last page.
 */
struct kvk_prep_run {
	const int32_t *row; /* page ids */
	int64_t end;        /* positions that the row has */
	int64_t first;
	int32_t count; /* query tokens */
	int32_t page_tokens;
	bool turn;
};
/* -EOVERFLOW when a slot does not fit slot_bytes: *out_column is the row's column then. */
int kvk_prep_run_check(const struct kvk_prep_run *run, uint32_t slot_bytes, int64_t *out_column);
/* Writes them from entry `at` of out on. */
void kvk_prep_run_write(const struct kvk_prep_ops *ops, const struct kvk_prep_run *run, uint32_t slot_bytes,
			void *out, int64_t at);

/* ceil(min(visible + i, most) / block_tokens) for each i below count; `least` where nothing is visible. */
struct kvk_prep_valid {
	int64_t visible, most;
	int32_t block_tokens;
	int32_t count;
	int32_t least;
};
void kvk_prep_valid_write(const struct kvk_prep_ops *ops, const struct kvk_prep_valid *valid, int32_t *out);

#endif
