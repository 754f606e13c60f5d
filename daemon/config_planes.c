/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The planes of a pool:
 *
 *   planes = item, item, ...
 *   item   = role dtype [HEADSxDIM] [nhd|hnd] [layers A[-B]]     or   opaque BYTES [layers A[-B]]
 *
 * Each item gives one plane on each of its layers (all, when it names none). Planes are ordered by layer, then as the items are.
 */
#include "config_internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ITEMS 64u
#define LATENT_DIM 576u
#define MAX_HEADS 4096u
#define MAX_DIM 65536u
#define MAX_OPAQUE_BYTES (1u << 30)

struct item {
	struct kvw_plane plane;
	uint32_t first_layer;
	uint32_t last_layer;
	char text[64];
};

static int fail_item(const struct kvd_context *context, const struct item *item, const char *problem)
{
	return kvd_value_fail(context, "is refused: in '%s' %s", item->text, problem);
}

/* Words are separated by blanks; NULL at the end. */
static char *next_word(char **rest)
{
	char *word;

	do {
		word = strsep(rest, " \t");
	} while (word && !*word);
	return word;
}

static int read_opaque(const struct kvd_context *context, struct item *item, const char *bytes)
{
	uint64_t value;

	if (!kvd_parse_number(bytes, &value) || !value || value > MAX_OPAQUE_BYTES)
		return fail_item(context, item,
				 "opaque needs its bytes of a block, 1 to 1073741824, like 'opaque 16'");
	item->plane.dtype = KVW_DTYPE_U8;
	item->plane.heads = 1;
	item->plane.dim = (uint32_t)value;
	return 0;
}

/* A latent is one head of 576 elements, or a packed row, which is one element. */
static int read_latent(const struct kvd_context *context, struct item *item)
{
	struct kvw_plane *plane = &item->plane;

	plane->heads = 1;
	plane->dim = plane->dtype == KVW_DTYPE_FP8_V32 ? 1 : LATENT_DIM;
	if (plane->dtype == KVW_DTYPE_E4M3)
		return fail_item(context, item, "latent is bf16, f16, f32 or fp8_v32");
	return 0;
}

static int read_dtype(const struct kvd_context *context, struct item *item, const char *word)
{
	item->plane.dtype = kvw_dtype_parse(word);
	if (!item->plane.dtype || item->plane.dtype == KVW_DTYPE_U8)
		return fail_item(context, item,
				 "the dtype is none of bf16, f16, f32, e4m3 and (latent only) fp8_v32");
	if (item->plane.role == KVW_ROLE_LATENT)
		return read_latent(context, item);
	if (item->plane.dtype == KVW_DTYPE_FP8_V32)
		return fail_item(context, item, "fp8_v32 is a dtype of latent only");
	return 0;
}

/* "4x128" */
static int read_shape(const struct kvd_context *context, struct item *item, char *word)
{
	char *dim = strchr(word, 'x');
	uint64_t heads;
	uint64_t elements;

	*dim++ = '\0';
	if (item->plane.dim)
		return fail_item(context, item, "the shape is given by the role; leave HxD out");
	if (!kvd_parse_number(word, &heads) || !kvd_parse_number(dim, &elements) || !heads || !elements ||
	    heads > MAX_HEADS || elements > MAX_DIM)
		return fail_item(context, item,
				 "HxD is not 1 to 4096 heads x 1 to 65536 elements, like 4x128");
	if (item->plane.role == KVW_ROLE_INDEX_K && heads != 1)
		return fail_item(context, item, "index_k has one head, like 1x128");
	item->plane.heads = (uint32_t)heads;
	item->plane.dim = (uint32_t)elements;
	return 0;
}

/* "3-59" or "3" */
static int read_layers(const struct kvd_context *context, struct item *item, char *word, uint32_t layers)
{
	char *last_text = word ? strchr(word, '-') : NULL;
	uint64_t first;
	uint64_t last;

	if (last_text)
		*last_text++ = '\0';
	if (!word || !kvd_parse_number(word, &first) ||
	    !kvd_parse_number(last_text ? last_text : word, &last) || first > last)
		return fail_item(context, item, "'layers' needs A-B, like layers 3-59");
	if (last >= layers)
		return fail_item(context, item,
				 "the last layer is above layers - 1; raise 'layers' or lower it");
	item->first_layer = (uint32_t)first;
	item->last_layer = (uint32_t)last;
	return 0;
}

static int read_layout(const struct kvd_context *context, struct item *item, const char *word)
{
	if (item->plane.role == KVW_ROLE_LATENT || item->plane.role == KVW_ROLE_OPAQUE)
		return fail_item(context, item, "nhd and hnd are for k, v and index_k; leave it out");
	item->plane.layout = kvw_layout_parse(word);
	return 0;
}

/* What follows role and dtype, each at most once. */
static int read_options(const struct kvd_context *context, struct item *item, char *rest, uint32_t layers)
{
	bool has_layers = false;
	char *word;
	int ret = 0;

	while (!ret && (word = next_word(&rest))) {
		if (!strcmp(word, "layers") && !has_layers) {
			has_layers = true;
			ret = read_layers(context, item, next_word(&rest), layers);
		} else if (kvw_layout_parse(word) && !item->plane.layout) {
			ret = read_layout(context, item, word);
		} else if (strchr(word, 'x')) {
			ret = read_shape(context, item, word);
		} else {
			ret = fail_item(context, item, "there is a word too many, or one that is not known");
		}
	}
	return ret;
}

static int read_item(const struct kvd_context *context, char *text, uint32_t layers, struct item *item)
{
	char *role;
	char *dtype;
	int ret;

	*item = (struct item){.last_layer = layers - 1};
	text += strspn(text, " \t");
	snprintf(item->text, sizeof(item->text), "%s", text);
	role = next_word(&text);
	dtype = next_word(&text);
	item->plane.role = role ? kvw_role_parse(role) : 0;
	if (!item->plane.role)
		return fail_item(context, item, "the role is none of latent, k, v, index_k and opaque");
	if (!dtype)
		return fail_item(context, item, "the dtype is missing (opaque: its bytes of a block)");
	ret = item->plane.role == KVW_ROLE_OPAQUE ? read_opaque(context, item, dtype)
						  : read_dtype(context, item, dtype);
	if (!ret)
		ret = read_options(context, item, text, layers);
	if (!ret && !item->plane.dim)
		ret = fail_item(context, item, "HxD (heads x elements) is missing, like 4x128");
	if (!item->plane.layout)
		item->plane.layout = KVW_LAYOUT_NHD;
	return ret;
}

static int read_items(const struct kvd_context *context, char *text, uint32_t layers, struct item *items,
		      uint32_t *out_count)
{
	uint32_t count = 0;
	char *item;
	int ret = 0;

	while (!ret && (item = strsep(&text, ","))) {
		if (count == MAX_ITEMS)
			return kvd_value_fail(context, "has more than %u items", MAX_ITEMS);
		ret = read_item(context, item, layers, &items[count++]);
	}
	*out_count = count;
	return ret;
}

static int add_plane(const struct kvd_context *context, struct kvw_geometry *geometry, uint32_t layer_start,
		     const struct item *item, uint32_t layer)
{
	struct kvw_plane *plane;

	for (uint32_t i = layer_start; i < geometry->plane_count; i++)
		if (geometry->planes[i].role == item->plane.role)
			return kvd_value_fail(context, "gives layer %u the role %s twice", layer,
					      kvw_role_name(item->plane.role));
	if (geometry->plane_count == KVW_MAX_PLANES)
		return kvd_value_fail(context, "makes more than the limit of %u planes", KVW_MAX_PLANES);
	plane = &geometry->planes[geometry->plane_count++];
	*plane = item->plane;
	plane->layer = layer;
	plane->plane_set = 1;
	plane->placement = KVW_PLACEMENT_REPLICATED;
	plane->kernel_page_tokens = geometry->block_tokens;
	return 0;
}

static int expand(const struct kvd_context *context, const struct item *items, uint32_t count,
		  struct kvd_pool_draft *draft)
{
	struct kvw_geometry *geometry = &draft->config.geometry;
	int ret = 0;

	for (uint32_t layer = 0; layer < draft->layers; layer++) {
		uint32_t start = geometry->plane_count;

		for (uint32_t i = 0; i < count && !ret; i++)
			if (layer >= items[i].first_layer && layer <= items[i].last_layer)
				ret = add_plane(context, geometry, start, &items[i], layer);
	}
	return ret;
}

int kvd_planes_read(const struct kvd_context *context, struct kvd_pool_draft *draft)
{
	struct item *items = calloc(MAX_ITEMS, sizeof(*items));
	char *copy = strdup(draft->planes);
	uint32_t count = 0;
	int ret = -ENOMEM;

	if (items && copy) {
		ret = read_items(context, copy, draft->layers, items, &count);
		if (!ret)
			ret = expand(context, items, count, draft);
	}
	free(copy);
	free(items);
	return ret;
}
