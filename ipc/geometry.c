/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places planes in blocks and blocks in a shard. Everything is checked before anything is written, so a
 * refused geometry is left as it came.
 */
#include "geometry.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include <kvpool/error.h>

#define MAX_SHARD_BYTES (1ull << 62)
/* The null block and one sink an engine come on top of the pool's own blocks. */
#define MAX_RECORDS (KVW_MAX_BLOCKS + KVW_MAX_ENGINES + 1)

struct entry {
	uint32_t number;
	const char *text;
};

#define ENTRY(name, number, text) {number, text},
#define ENTRY_DTYPE(name, number, text, bytes) {number, text},
static const struct entry roles[] = {KVW_ROLE_MAP(ENTRY)};
static const struct entry dtypes[] = {KVW_DTYPE_MAP(ENTRY_DTYPE)};
static const struct entry layouts[] = {KVW_LAYOUT_MAP(ENTRY)};
static const struct entry pool_layouts[] = {KVW_POOL_LAYOUT_MAP(ENTRY)};
#define COUNT(table) (uint32_t)(sizeof(table) / sizeof((table)[0]))

static const char *name_in(const struct entry *table, uint32_t count, uint32_t number)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (table[i].number == number)
			return table[i].text;
	return NULL;
}

static uint32_t number_in(const struct entry *table, uint32_t count, const char *text)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (!strcmp(table[i].text, text))
			return table[i].number;
	return 0;
}

static const char *or_unknown(const char *text)
{
	return text ? text : "?";
}

const char *kvw_role_name(uint32_t role)
{
	return or_unknown(name_in(roles, COUNT(roles), role));
}

const char *kvw_dtype_name(uint32_t dtype)
{
	return or_unknown(name_in(dtypes, COUNT(dtypes), dtype));
}

const char *kvw_layout_name(uint32_t layout)
{
	return or_unknown(name_in(layouts, COUNT(layouts), layout));
}

const char *kvw_pool_layout_name(uint32_t layout)
{
	return or_unknown(name_in(pool_layouts, COUNT(pool_layouts), layout));
}

uint32_t kvw_role_parse(const char *text)
{
	return number_in(roles, COUNT(roles), text);
}

uint32_t kvw_dtype_parse(const char *text)
{
	return number_in(dtypes, COUNT(dtypes), text);
}

uint32_t kvw_layout_parse(const char *text)
{
	return number_in(layouts, COUNT(layouts), text);
}

uint32_t kvw_pool_layout_parse(const char *text)
{
	return number_in(pool_layouts, COUNT(pool_layouts), text);
}

uint32_t kvw_dtype_bytes(uint32_t dtype)
{
	switch (dtype) {
#define X(name, number, text, bytes)                                                                         \
	case number:                                                                                         \
		return bytes;
		KVW_DTYPE_MAP(X)
#undef X
	default:
		return 0;
	}
}

static int check_numbers(const struct kvw_plane *plane)
{
	if (!name_in(roles, COUNT(roles), plane->role) || !name_in(dtypes, COUNT(dtypes), plane->dtype) ||
	    !name_in(layouts, COUNT(layouts), plane->layout))
		return -EINVAL;
	if (plane->heads == 0 || plane->dim == 0 || plane->kernel_page_tokens == 0)
		return -EINVAL;
	if (plane->placement < KVW_PLACEMENT_REPLICATED || plane->placement > KVW_PLACEMENT_SHARD)
		return -EINVAL;
	return 0;
}

static int check_reserved(const struct kvw_geometry *geometry, const struct kvw_plane *plane)
{
	if (plane->group != 0 || plane->plane_set > 1 || plane->placement != KVW_PLACEMENT_REPLICATED)
		return -KVP_ERESERVED;
	return plane->kernel_page_tokens == geometry->block_tokens ? 0 : -KVP_ERESERVED;
}

/* What a role demands of heads, dtype and dim. */
static int check_role(const struct kvw_plane *plane)
{
	bool one_head = plane->role == KVW_ROLE_LATENT || plane->role == KVW_ROLE_INDEX_K ||
			plane->role == KVW_ROLE_OPAQUE;

	if (one_head && plane->heads != 1)
		return -EINVAL;
	if (plane->role == KVW_ROLE_OPAQUE && plane->dtype != KVW_DTYPE_U8)
		return -EINVAL;
	if (plane->dtype == KVW_DTYPE_FP8_V32 && (plane->role != KVW_ROLE_LATENT || plane->dim != 1))
		return -EINVAL;
	return 0;
}

static int check_plane(const struct kvw_geometry *geometry, const struct kvw_plane *plane)
{
	int ret = check_numbers(plane);

	if (!ret)
		ret = check_role(plane);
	if (!ret)
		ret = check_reserved(geometry, plane);
	return ret;
}

static int check_frame(const struct kvw_geometry *geometry)
{
	if (geometry->block_tokens == 0 || geometry->blocks == 0 || geometry->plane_count == 0)
		return -EINVAL;
	if (!name_in(pool_layouts, COUNT(pool_layouts), geometry->pool_layout))
		return -EINVAL;
	if (geometry->block_tokens > KVW_MAX_BLOCK_TOKENS || geometry->blocks > MAX_RECORDS ||
	    geometry->plane_count > KVW_MAX_PLANES)
		return -KVP_ELIMIT;
	return 0;
}

/* Bytes of one block of the plane; -KVP_ELIMIT past the largest shard. */
static int page_bytes_of(uint32_t block_tokens, const struct kvw_plane *plane, uint64_t *out)
{
	uint64_t bytes = (uint64_t)plane->heads * plane->dim;
	uint32_t tokens = plane->role == KVW_ROLE_OPAQUE ? 1 : block_tokens;

	if (__builtin_mul_overflow(bytes, (uint64_t)tokens * kvw_dtype_bytes(plane->dtype), &bytes) ||
	    bytes > MAX_SHARD_BYTES)
		return -KVP_ELIMIT;
	*out = bytes;
	return 0;
}

static uint64_t plane_up(uint64_t bytes)
{
	return (bytes + KVW_PLANE_ALIGN - 1) & ~(uint64_t)(KVW_PLANE_ALIGN - 1);
}

/*
 * Sum of the planes' aligned pages, the same in both layouts. A sum of 512 terms is checked at each: it
 * cannot wrap.
 */
static int measure(const struct kvw_geometry *geometry, uint64_t *record_bytes)
{
	uint64_t record = 0;
	uint64_t bytes;
	uint32_t i;

	for (i = 0; i < geometry->plane_count; i++) {
		const struct kvw_plane *plane = &geometry->planes[i];
		uint64_t page;
		int ret = check_plane(geometry, plane);

		if (!ret)
			ret = page_bytes_of(geometry->block_tokens, plane, &page);
		if (ret)
			return ret;
		record += plane_up(page);
		if (record > MAX_SHARD_BYTES)
			return -KVP_ELIMIT;
	}
	if (__builtin_mul_overflow(record, geometry->blocks, &bytes) || bytes > MAX_SHARD_BYTES)
		return -KVP_ELIMIT;
	*record_bytes = record;
	return 0;
}

/* Strides inside a block. Opaque bytes have neither tokens nor heads. */
static void place_elements(uint32_t block_tokens, struct kvw_plane *plane)
{
	if (plane->role == KVW_ROLE_OPAQUE) {
		plane->token_stride = 0;
		plane->head_stride = 0;
	} else if (plane->layout == KVW_LAYOUT_NHD) {
		plane->token_stride = (uint64_t)plane->heads * plane->dim;
		plane->head_stride = plane->dim;
	} else {
		plane->token_stride = plane->dim;
		plane->head_stride = (uint64_t)block_tokens * plane->dim;
	}
}

int kvw_geometry_place(struct kvw_geometry *geometry)
{
	uint64_t base = 0;
	uint64_t record_bytes;
	uint32_t i;
	int ret = check_frame(geometry);

	if (!ret)
		ret = measure(geometry, &record_bytes);
	if (ret)
		return ret;
	for (i = 0; i < geometry->plane_count; i++) {
		struct kvw_plane *plane = &geometry->planes[i];
		uint64_t own;

		page_bytes_of(geometry->block_tokens, plane, &plane->page_bytes);
		own = plane_up(plane->page_bytes);
		place_elements(geometry->block_tokens, plane);
		plane->base = base;
		plane->stride = geometry->pool_layout == KVW_POOL_BLOCK_MAJOR ? record_bytes : own;
		base += geometry->pool_layout == KVW_POOL_BLOCK_MAJOR ? own : own * geometry->blocks;
	}
	geometry->record_bytes = record_bytes;
	geometry->bytes = record_bytes * geometry->blocks;
	return 0;
}
