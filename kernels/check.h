/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Building blocks of validate.c: taking a caller's struct in, describing an array once for the NULL check,
 * the default strides and the address arithmetic, and looking through the integer tables that address
 * memory.
 */
#ifndef KVPOOL_KERNELS_CHECK_H
#define KVPOOL_KERNELS_CHECK_H

#include <kvpool/kernels.h>

#define KVK_MAX_RANK 4

/* An array as kernels.h describes it: sizes of all dimensions, the caller's strides of all but the last. */
struct kvk_array {
	const void *base;
	size_t element_bytes;
	int rank;
	int64_t sizes[KVK_MAX_RANK];
	int64_t *strides[KVK_MAX_RANK - 1]; /* in place; 0 becomes the contiguous stride */
};

/*
 * Copies *params (of the size its first word says) into *known of known_bytes, zero-extending or checking
 * the tail. The caller's struct may be read-only and is read once.
 */
int kvk_take_params(void *known, size_t known_bytes, const void *params);

/* -EINVAL for a NULL base or a negative stride, -EOVERFLOW when an element's byte offset does not fit. */
int kvk_check_array(const struct kvk_array *array);

/*
 * Is `dtype` one of the bits in `allowed` (1u << dtype)? 0, -ENOTSUP for a known other one, -EINVAL for an
 * unknown.
 */
int kvk_check_dtype(uint32_t dtype, uint32_t allowed);

/* The caller's threads can be used; NULL can. Else -EINVAL. */
int kvk_check_threads(const struct kvk_threads *threads);

/* -ENOSPC for less than `needed` bytes, -EINVAL for NULL or unaligned scratch of which something is needed. */
int kvk_check_scratch(const void *scratch, size_t bytes, size_t needed);

/* The integer arrays of a paged cache, as an operation reads them. */
struct kvk_paging {
	const int32_t *block_table;
	const int32_t *lens;
	int64_t table_stride;
	int32_t batch;
	int32_t table_width;
	int32_t page_tokens;
	int32_t pages;
};

/* Every length fits its table row, every page id below it is a page of the cache; else -ERANGE. */
int kvk_check_paging(const struct kvk_paging *paging);

/* cu_q [batch + 1] does not decrease and stays in [0, limit]; else -ERANGE. */
int kvk_check_offsets(const int32_t *offsets, int32_t batch, int32_t limit);

/* Every slot is below pages * page_tokens; else -ERANGE. */
int kvk_check_slots(const void *slots, uint32_t slot_bytes, int32_t tokens, int64_t slot_count);

#endif
