/* SPDX-License-Identifier: Apache-2.0 */
/* Rows in planes: written by the engine that computes a token, compared by every engine that finds it. */
#include "plane.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Rows of FP8_V32 are given as bytes. */
#define FP8_V32_BYTES 656

static const struct {
	uint32_t dtype;
	enum rep_row_kind kind;
	uint32_t bytes;
} kinds[] = {
	{KVP_DTYPE_BF16, REP_ROW_BF16, 2}, {KVP_DTYPE_F16, REP_ROW_F16, 2},  {KVP_DTYPE_F32, REP_ROW_F32, 4},
	{KVP_DTYPE_E4M3, REP_ROW_E4M3, 1}, {KVP_DTYPE_U8, REP_ROW_BYTES, 1},
};

/* Element bytes; 0 for a dtype of which nothing is known. */
static uint32_t set_kind(struct rep_plane *plane, const struct kvp_view *view)
{
	plane->dtype = view->dtype;
	if (view->role == KVP_ROLE_LATENT && view->dtype == KVP_DTYPE_U8 && view->shape[3] == FP8_V32_BYTES) {
		plane->dtype = KVP_DTYPE_FP8_V32;
		plane->kind = REP_ROW_FP8_V32;
		return 1;
	}
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (kinds[i].dtype == view->dtype) {
			plane->kind = kinds[i].kind;
			return kinds[i].bytes;
		}
	return 0;
}

static int plane_init(struct rep_planes *planes, const struct kvp_view *view, uint32_t index)
{
	struct rep_plane *plane = &planes->at[planes->count];
	uint32_t element = set_kind(plane, view);
	/* NHD: blocks, tokens, heads, dim. HND: blocks, heads, tokens, dim. */
	bool heads_first = (uint64_t)view->shape[1] != planes->block_tokens;

	if (!element)
		return -ENOTSUP;
	plane->data = view->data;
	plane->index = index;
	plane->role = view->role;
	plane->heads = (uint32_t)view->shape[heads_first ? 1 : 2];
	plane->block_stride = view->strides[0] * element;
	plane->token_stride = view->strides[heads_first ? 2 : 1] * element;
	plane->head_stride = view->strides[heads_first ? 1 : 2] * element;
	plane->row_bytes = (uint32_t)view->shape[3] * element;
	plane->start = planes->block_bytes;
	planes->block_bytes += (uint64_t)plane->row_bytes * plane->heads * planes->block_tokens;
	planes->longest_row = plane->row_bytes > planes->longest_row ? plane->row_bytes : planes->longest_row;
	planes->count++;
	return 0;
}

int rep_planes_init(struct rep_planes *planes, const struct kvp_client *client,
		    const struct kvp_pool_info *pool)
{
	int ret = 0;

	memset(planes, 0, sizeof(*planes));
	planes->block_tokens = pool->block_tokens;
	planes->at = calloc(pool->planes, sizeof(*planes->at));
	if (!planes->at)
		return -ENOMEM;
	for (uint32_t i = 0; i < pool->planes && !ret; i++) {
		struct kvp_view view = {.size = sizeof(view)};

		ret = kvp_plane_view(client, i, KVP_LAYOUT_NATIVE, &view);
		if (!ret && view.role != KVP_ROLE_OPAQUE)
			ret = plane_init(planes, &view, i);
	}
	if (!ret && !planes->count)
		ret = -ENOTSUP;
	if (ret)
		rep_planes_free(planes);
	return ret;
}

void rep_planes_free(struct rep_planes *planes)
{
	rep_device_close(planes->device);
	free(planes->at);
	memset(planes, 0, sizeof(*planes));
}

int rep_planes_on_device(struct rep_planes *planes)
{
	size_t page = 0;

	for (uint32_t i = 0; i < planes->count; i++) {
		size_t bytes = rep_page_bytes(&planes->at[i], planes->block_tokens);

		page = bytes > page ? bytes : page;
	}
	return rep_device_open(planes->at[0].data, page, &planes->device);
}

const uint8_t *rep_planes_page(const struct rep_planes *planes, const struct rep_plane *plane, int32_t block)
{
	const uint8_t *page = rep_row_at(plane, block, 0, 0);

	return planes->device
		       ? rep_device_get(planes->device, page, rep_page_bytes(plane, planes->block_tokens))
		       : page;
}

uint8_t rep_planes_flip(const struct rep_planes *planes, const struct rep_plane *plane, int32_t block,
			uint32_t at, uint8_t mask)
{
	uint8_t *to = rep_row_at(plane, block, 0, 0) + at;
	uint8_t was = rep_planes_page(planes, plane, block)[at];
	uint8_t *room;

	if (!planes->device) {
		*to = was ^ mask;
		return was;
	}
	room = rep_device_room(planes->device, 1);
	*room = was ^ mask;
	rep_device_put(planes->device, to, room, 1);
	return was;
}

static void write_row(const struct rep_planes *planes, const struct rep_plane *plane, uint8_t *to,
		      uint32_t head, uint64_t prefix, uint32_t token)
{
	uint8_t *row = planes->device ? rep_device_room(planes->device, plane->row_bytes) : to;

	rep_row(prefix, token, plane->index, head, plane->kind, row, plane->row_bytes);
	if (planes->device)
		rep_device_put(planes->device, to, row, plane->row_bytes);
}

void rep_planes_write(const struct rep_planes *planes, int32_t block, uint32_t offset, uint64_t prefix,
		      uint32_t token)
{
	for (uint32_t i = 0; i < planes->count; i++) {
		const struct rep_plane *plane = &planes->at[i];

		for (uint32_t head = 0; head < plane->heads; head++)
			write_row(planes, plane, rep_row_at(plane, block, offset, head), head, prefix, token);
	}
}

/* First byte that differs; the caller knows that there is one. */
static uint32_t first_difference(const uint8_t *a, const uint8_t *b)
{
	uint32_t at = 0;

	while (a[at] == b[at])
		at++;
	return at;
}

/* page: the plane's rows of the block, as they can be read. */
static int compare_row(const struct rep_plane *plane, const uint8_t *page, uint32_t token, uint32_t head,
		       const uint8_t *wanted, struct rep_mismatch *out)
{
	const uint8_t *row = page + token * plane->token_stride + head * plane->head_stride;
	uint32_t at;

	if (!memcmp(row, wanted, plane->row_bytes))
		return 0;
	at = first_difference(row, wanted);
	*out = (struct rep_mismatch){
		.plane = plane->index,
		.token = token,
		.offset = plane->start + (uint64_t)(row - page) + at,
		.got = row[at],
		.wanted = wanted[at],
	};
	return 1;
}

static int compare_plane(const struct rep_planes *planes, const struct rep_plane *plane, int32_t block,
			 const uint32_t *tokens, uint64_t prefix, uint8_t *scratch, struct rep_mismatch *out)
{
	const uint8_t *page = rep_planes_page(planes, plane, block);
	int found = 0;

	for (uint32_t t = 0; t < planes->block_tokens && !found; t++) {
		prefix = rep_prefix_next(prefix, tokens[t]);
		for (uint32_t head = 0; head < plane->heads && !found; head++) {
			rep_row(prefix, tokens[t], plane->index, head, plane->kind, scratch,
				plane->row_bytes);
			found = compare_row(plane, page, t, head, scratch, out);
		}
	}
	return found;
}

int rep_planes_compare(const struct rep_planes *planes, int32_t block, const uint32_t *tokens,
		       uint64_t *prefix, uint8_t *scratch, struct rep_mismatch *out)
{
	int found = 0;

	for (uint32_t i = 0; i < planes->count && !found; i++)
		found = compare_plane(planes, &planes->at[i], block, tokens, *prefix, scratch, out);
	*prefix = rep_prefix_over(*prefix, tokens, planes->block_tokens);
	return found;
}
