/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Placement of planes. The address formula of geometry.h is computed here by itself; in small pools every
 * element of every block is visited, and no byte may belong to two.
 */
#include "support.h"

#include "ipc/geometry.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "kvpool/error.h"

static struct kvw_plane plane(uint32_t role, uint32_t dtype, uint32_t layout, uint32_t heads, uint32_t dim)
{
	return (struct kvw_plane){
		.role = role,
		.dtype = dtype,
		.layout = layout,
		.heads = heads,
		.dim = dim,
		.plane_set = 1,
		.placement = KVW_PLACEMENT_REPLICATED,
	};
}

static void add(struct kvw_geometry *geometry, struct kvw_plane added)
{
	added.layer = geometry->plane_count;
	added.kernel_page_tokens = geometry->block_tokens;
	geometry->planes[geometry->plane_count++] = added;
}

static struct kvw_geometry *fresh(uint32_t pool_layout, uint32_t blocks, uint32_t block_tokens)
{
	static struct kvw_geometry geometry;

	memset(&geometry, 0, sizeof(geometry));
	geometry.pool_layout = pool_layout;
	geometry.blocks = blocks;
	geometry.block_tokens = block_tokens;
	return &geometry;
}

/* One of everything, with sizes that are no multiples of anything. */
static struct kvw_geometry *mixed(uint32_t pool_layout, uint32_t blocks, uint32_t block_tokens)
{
	struct kvw_geometry *geometry = fresh(pool_layout, blocks, block_tokens);

	add(geometry, plane(KVW_ROLE_LATENT, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 1, 17));
	add(geometry, plane(KVW_ROLE_K, KVW_DTYPE_F16, KVW_LAYOUT_NHD, 3, 5));
	add(geometry, plane(KVW_ROLE_V, KVW_DTYPE_F32, KVW_LAYOUT_HND, 3, 5));
	add(geometry, plane(KVW_ROLE_LATENT, KVW_DTYPE_FP8_V32, KVW_LAYOUT_NHD, 1, 1));
	add(geometry, plane(KVW_ROLE_INDEX_K, KVW_DTYPE_E4M3, KVW_LAYOUT_HND, 1, 9));
	add(geometry, plane(KVW_ROLE_OPAQUE, KVW_DTYPE_U8, KVW_LAYOUT_NHD, 1, 16));
	return geometry;
}

static uint64_t element_bytes(const struct kvw_plane *p)
{
	switch (p->dtype) {
	case KVW_DTYPE_BF16:
	case KVW_DTYPE_F16:
		return 2;
	case KVW_DTYPE_F32:
		return 4;
	case KVW_DTYPE_FP8_V32:
		return 656;
	default:
		return 1;
	}
}

/*
 * Claims the bytes of one element: each byte once, all inside the shard and inside the block's page of this
 * plane.
 */
static void claim(uint8_t *bytes, const struct kvw_geometry *geometry, const struct kvw_plane *p, uint64_t id,
		  uint64_t element)
{
	uint64_t offset = p->base + id * p->stride + element * element_bytes(p);
	uint64_t i;

	assert_true(element * element_bytes(p) < p->page_bytes);
	for (i = 0; i < element_bytes(p); i++) {
		assert_true(offset + i < geometry->bytes);
		assert_int_equal(bytes[offset + i], 0);
		bytes[offset + i] = 1;
	}
}

static uint64_t claim_page(uint8_t *bytes, const struct kvw_geometry *geometry, const struct kvw_plane *p,
			   uint64_t id)
{
	bool opaque = p->role == KVW_ROLE_OPAQUE;
	uint64_t tokens = opaque ? 1 : geometry->block_tokens;
	uint64_t t, h, e;

	assert_int_equal((p->base + id * p->stride) % KVW_PLANE_ALIGN, 0);
	for (t = 0; t < tokens; t++)
		for (h = 0; h < p->heads; h++)
			for (e = 0; e < p->dim; e++)
				claim(bytes, geometry, p, id, t * p->token_stride + h * p->head_stride + e);
	return tokens * p->heads * p->dim * element_bytes(p);
}

static void check_every_byte(const struct kvw_geometry *geometry)
{
	uint8_t *bytes = calloc(1, geometry->bytes);
	uint64_t claimed = 0, found = 0;
	uint64_t id, i;
	uint32_t k;

	assert_non_null(bytes);
	for (id = 0; id < geometry->blocks; id++) {
		for (k = 0; k < geometry->plane_count; k++) {
			uint64_t page = claim_page(bytes, geometry, &geometry->planes[k], id);

			assert_int_equal(page, geometry->planes[k].page_bytes);
			claimed += page;
		}
	}
	for (i = 0; i < geometry->bytes; i++)
		found += bytes[i];
	assert_int_equal(found, claimed);
	free(bytes);
}

static void no_byte_belongs_to_two_elements(void **state)
{
	static const uint32_t tokens[] = {1, 2, 7, 16, 64};
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++) {
		struct kvw_geometry *geometry = mixed(KVW_POOL_BLOCK_MAJOR, 5, tokens[i]);

		assert_int_equal(kvw_geometry_place(geometry), 0);
		check_every_byte(geometry);
		geometry = mixed(KVW_POOL_LAYER_MAJOR, 5, tokens[i]);
		assert_int_equal(kvw_geometry_place(geometry), 0);
		check_every_byte(geometry);
	}
}

static void random_pools_do_not_overlap_either(void **state)
{
	static const uint32_t dtypes[] = {KVW_DTYPE_BF16, KVW_DTYPE_F16, KVW_DTYPE_F32, KVW_DTYPE_E4M3,
					  KVW_DTYPE_U8};
	struct kvt_rng rng = {.state = kvt_seed()};
	uint32_t round, i;

	(void)state;
	for (round = 0; round < 200; round++) {
		struct kvw_geometry *geometry =
			fresh(1 + (uint32_t)kvt_rng_below(&rng, 2), 1 + (uint32_t)kvt_rng_below(&rng, 6),
			      1 + (uint32_t)kvt_rng_below(&rng, 20));
		uint32_t planes = 1 + (uint32_t)kvt_rng_below(&rng, 6);

		for (i = 0; i < planes; i++)
			add(geometry,
			    plane(KVW_ROLE_K, dtypes[kvt_rng_below(&rng, 5)],
				  1 + (uint32_t)kvt_rng_below(&rng, 2), 1 + (uint32_t)kvt_rng_below(&rng, 4),
				  1 + (uint32_t)kvt_rng_below(&rng, 70)));
		assert_int_equal(kvw_geometry_place(geometry), 0);
		check_every_byte(geometry);
	}
}

static void strides_of_nhd_and_hnd(void **state)
{
	struct kvw_geometry *geometry = fresh(KVW_POOL_BLOCK_MAJOR, 3, 64);

	(void)state;
	add(geometry, plane(KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 8, 128));
	add(geometry, plane(KVW_ROLE_V, KVW_DTYPE_BF16, KVW_LAYOUT_HND, 8, 128));
	assert_int_equal(kvw_geometry_place(geometry), 0);
	assert_int_equal(geometry->planes[0].token_stride, 8 * 128);
	assert_int_equal(geometry->planes[0].head_stride, 128);
	assert_int_equal(geometry->planes[1].token_stride, 128);
	assert_int_equal(geometry->planes[1].head_stride, 64 * 128);
	assert_int_equal(geometry->planes[0].page_bytes, 64 * 8 * 128 * 2);
	assert_int_equal(geometry->planes[1].page_bytes, 64 * 8 * 128 * 2);
}

static void latent_rows_and_fp8_rows(void **state)
{
	struct kvw_geometry *geometry = fresh(KVW_POOL_LAYER_MAJOR, 100, 64);

	(void)state;
	add(geometry, plane(KVW_ROLE_LATENT, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 1, 576));
	add(geometry, plane(KVW_ROLE_LATENT, KVW_DTYPE_FP8_V32, KVW_LAYOUT_NHD, 1, 1));
	add(geometry, plane(KVW_ROLE_OPAQUE, KVW_DTYPE_U8, KVW_LAYOUT_NHD, 1, 16));
	assert_int_equal(kvw_geometry_place(geometry), 0);
	assert_int_equal(geometry->planes[0].page_bytes, 73728);
	assert_int_equal(geometry->planes[0].token_stride, 576);
	assert_int_equal(geometry->planes[1].page_bytes, 64 * 656);
	assert_int_equal(geometry->planes[1].token_stride, 1);
	assert_int_equal(geometry->planes[2].page_bytes, 16);
	assert_int_equal(geometry->planes[2].stride, 256);
	assert_int_equal(geometry->planes[2].token_stride, 0);
}

static void layer_major_planes_follow_each_other(void **state)
{
	struct kvw_geometry *geometry = mixed(KVW_POOL_LAYER_MAJOR, 9, 16);
	uint64_t base = 0;
	uint32_t i;

	(void)state;
	assert_int_equal(kvw_geometry_place(geometry), 0);
	for (i = 0; i < geometry->plane_count; i++) {
		const struct kvw_plane *p = &geometry->planes[i];

		assert_int_equal(p->base, base);
		assert_true(p->stride >= p->page_bytes && p->stride - p->page_bytes < KVW_PLANE_ALIGN);
		base += p->stride * geometry->blocks;
	}
	assert_int_equal(geometry->bytes, base);
	assert_int_equal(geometry->bytes, geometry->record_bytes * geometry->blocks);
}

static void block_major_blocks_follow_each_other(void **state)
{
	struct kvw_geometry *geometry = mixed(KVW_POOL_BLOCK_MAJOR, 9, 16);
	uint64_t end = 0;
	uint32_t i;

	(void)state;
	assert_int_equal(kvw_geometry_place(geometry), 0);
	for (i = 0; i < geometry->plane_count; i++) {
		const struct kvw_plane *p = &geometry->planes[i];

		assert_int_equal(p->stride, geometry->record_bytes);
		assert_true(p->base >= end && p->base - end < KVW_PLANE_ALIGN);
		end = p->base + p->page_bytes;
	}
	assert_true(geometry->record_bytes >= end && geometry->record_bytes - end < KVW_PLANE_ALIGN);
	assert_int_equal(geometry->bytes, geometry->record_bytes * 9);
}

/* ------------------------------------------------------------------ refusals */

/* A refused geometry comes back as it went in. */
static int place_unchanged(struct kvw_geometry *geometry)
{
	struct kvw_geometry *before = malloc(sizeof(*before));
	int ret;

	assert_non_null(before);
	*before = *geometry;
	ret = kvw_geometry_place(geometry);
	if (ret)
		assert_memory_equal(before, geometry, sizeof(*before));
	free(before);
	return ret;
}

/* One plane of K, with one field of it or of the geometry changed. */
#define PLACE_WITH(change)                                                                                   \
	__extension__({                                                                                      \
		struct kvw_geometry *g = fresh(KVW_POOL_BLOCK_MAJOR, 3, 64);                                 \
		struct kvw_plane *p = &g->planes[0];                                                         \
                                                                                                             \
		add(g, plane(KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 2, 128));                           \
		(void)p;                                                                                     \
		change;                                                                                      \
		place_unchanged(g);                                                                          \
	})

static void refuses_zero_sizes_and_unknown_numbers(void **state)
{
	(void)state;
	assert_int_equal(PLACE_WITH((void)0), 0);
	assert_int_equal(PLACE_WITH(g->blocks = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(g->block_tokens = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(g->plane_count = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(g->pool_layout = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(g->pool_layout = 3), -EINVAL);
	assert_int_equal(PLACE_WITH(p->role = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(p->role = 6), -EINVAL);
	assert_int_equal(PLACE_WITH(p->dtype = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(p->dtype = 7), -EINVAL);
	assert_int_equal(PLACE_WITH(p->layout = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(p->layout = 3), -EINVAL);
	assert_int_equal(PLACE_WITH(p->heads = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(p->dim = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(p->kernel_page_tokens = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(p->placement = 0), -EINVAL);
	assert_int_equal(PLACE_WITH(p->placement = 5), -EINVAL);
}

static void refuses_what_a_role_or_dtype_cannot_be(void **state)
{
	(void)state;
	assert_int_equal(PLACE_WITH(p->role = KVW_ROLE_LATENT), -EINVAL);
	assert_int_equal(PLACE_WITH((p->role = KVW_ROLE_LATENT, p->heads = 1)), 0);
	assert_int_equal(PLACE_WITH(p->role = KVW_ROLE_INDEX_K), -EINVAL);
	assert_int_equal(PLACE_WITH((p->role = KVW_ROLE_INDEX_K, p->heads = 1)), 0);
	assert_int_equal(PLACE_WITH((p->role = KVW_ROLE_OPAQUE, p->heads = 1)), -EINVAL);
	assert_int_equal(PLACE_WITH((p->role = KVW_ROLE_OPAQUE, p->dtype = KVW_DTYPE_U8)), -EINVAL);
	assert_int_equal(PLACE_WITH((p->role = KVW_ROLE_OPAQUE, p->heads = 1, p->dtype = KVW_DTYPE_U8)), 0);
	assert_int_equal(PLACE_WITH((p->dtype = KVW_DTYPE_FP8_V32, p->heads = 1, p->dim = 1)), -EINVAL);
	assert_int_equal(PLACE_WITH((p->role = KVW_ROLE_LATENT, p->dtype = KVW_DTYPE_FP8_V32, p->heads = 1)),
			 -EINVAL);
}

static void refuses_reserved_fields(void **state)
{
	(void)state;
	assert_int_equal(PLACE_WITH(p->group = 1), -KVP_ERESERVED);
	assert_int_equal(PLACE_WITH(p->plane_set = 0), 0);
	assert_int_equal(PLACE_WITH(p->plane_set = 2), -KVP_ERESERVED);
	assert_int_equal(PLACE_WITH(p->placement = KVW_PLACEMENT_HEADS), -KVP_ERESERVED);
	assert_int_equal(PLACE_WITH(p->placement = KVW_PLACEMENT_SHARD), -KVP_ERESERVED);
	assert_int_equal(PLACE_WITH(p->kernel_page_tokens = 32), -KVP_ERESERVED);
}

static void refuses_what_is_above_a_limit(void **state)
{
	(void)state;
	assert_int_equal(PLACE_WITH(g->plane_count = KVW_MAX_PLANES + 1), -KVP_ELIMIT);
	assert_int_equal(PLACE_WITH(g->plane_count = UINT32_MAX), -KVP_ELIMIT);
	assert_int_equal(PLACE_WITH(g->block_tokens = KVW_MAX_BLOCK_TOKENS + 1), -KVP_ELIMIT);
	assert_int_equal(PLACE_WITH(g->blocks = KVW_MAX_BLOCKS + KVW_MAX_ENGINES + 2), -KVP_ELIMIT);
	assert_int_equal(PLACE_WITH(g->blocks = KVW_MAX_BLOCKS + KVW_MAX_ENGINES + 1), 0);
}

/* Products that wrap around 64 bits, each at another place; and the largest that does not. */
static void refuses_sizes_that_wrap_around(void **state)
{
	struct kvw_geometry *geometry;
	uint32_t i;

	(void)state;
	assert_int_equal(PLACE_WITH((p->heads = UINT32_MAX, p->dim = UINT32_MAX)), -KVP_ELIMIT);
	assert_int_equal(PLACE_WITH((p->heads = 1u << 31, p->dim = 1u << 26)), -KVP_ELIMIT); /* 2^64 a page */
	assert_int_equal(PLACE_WITH((p->heads = 1u << 31, p->dim = 1u << 24)),
			 -KVP_ELIMIT); /* 2^62, 3 blocks */
	assert_int_equal(PLACE_WITH((g->blocks = 4, p->heads = 1u << 31, p->dim = 1u << 24)),
			 -KVP_ELIMIT);                                             /* 2^64 */
	assert_int_equal(PLACE_WITH((p->heads = 1u << 30, p->dim = 1u << 23)), 0); /* 2^60 */
	geometry = fresh(KVW_POOL_LAYER_MAJOR, 1, 64);
	for (i = 0; i < KVW_MAX_PLANES; i++)
		add(geometry,
		    plane(KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 1u << 30, 1u << 25)); /* 2^62 each */
	assert_int_equal(place_unchanged(geometry), -KVP_ELIMIT);
	geometry->plane_count = 1;
	assert_int_equal(place_unchanged(geometry), 0);
	assert_true(geometry->bytes == 1ull << 62);
}

static void names_and_numbers_agree(void **state)
{
	(void)state;
	assert_string_equal(kvw_role_name(KVW_ROLE_INDEX_K), "index_k");
	assert_string_equal(kvw_dtype_name(KVW_DTYPE_FP8_V32), "fp8_v32");
	assert_string_equal(kvw_layout_name(KVW_LAYOUT_HND), "hnd");
	assert_string_equal(kvw_pool_layout_name(KVW_POOL_LAYER_MAJOR), "layer_major");
	assert_string_equal(kvw_role_name(0), "?");
	assert_string_equal(kvw_dtype_name(99), "?");
	assert_int_equal(kvw_role_parse("opaque"), KVW_ROLE_OPAQUE);
	assert_int_equal(kvw_dtype_parse("bf16"), KVW_DTYPE_BF16);
	assert_int_equal(kvw_layout_parse("nhd"), KVW_LAYOUT_NHD);
	assert_int_equal(kvw_pool_layout_parse("block_major"), KVW_POOL_BLOCK_MAJOR);
	assert_int_equal(kvw_dtype_parse("BF16"), 0);
	assert_int_equal(kvw_dtype_parse(""), 0);
	assert_int_equal(kvw_layout_parse("nhdx"), 0);
	assert_int_equal(kvw_dtype_bytes(KVW_DTYPE_F32), 4);
	assert_int_equal(kvw_dtype_bytes(KVW_DTYPE_FP8_V32), 656);
	assert_int_equal(kvw_dtype_bytes(0), 0);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_byte_belongs_to_two_elements),
		cmocka_unit_test(random_pools_do_not_overlap_either),
		cmocka_unit_test(strides_of_nhd_and_hnd),
		cmocka_unit_test(latent_rows_and_fp8_rows),
		cmocka_unit_test(layer_major_planes_follow_each_other),
		cmocka_unit_test(block_major_blocks_follow_each_other),
		cmocka_unit_test(refuses_zero_sizes_and_unknown_numbers),
		cmocka_unit_test(refuses_what_a_role_or_dtype_cannot_be),
		cmocka_unit_test(refuses_reserved_fields),
		cmocka_unit_test(refuses_what_is_above_a_limit),
		cmocka_unit_test(refuses_sizes_that_wrap_around),
		cmocka_unit_test(names_and_numbers_agree),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests_name("unit.geometry", tests, NULL, NULL);
}
