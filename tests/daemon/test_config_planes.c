/* SPDX-License-Identifier: Apache-2.0 */
/* The planes of a pool: order, sizes, and what is refused. */
#include "config_load.h"

#include "support.h"

#include <stdio.h>
#include <string.h>

struct refusal {
	const char *text;     /* of the file */
	const char *needs[4]; /* each must stand in the sentence */
};

struct plane_row {
	uint32_t layer, role, dtype, layout, heads, dim;
	uint64_t page_bytes;
};

static void assert_planes(const char *planes, const char *layers, const struct plane_row *rows,
			  uint32_t count)
{
	char set_planes[256];
	char set_layers[64];
	struct config_loaded loaded;
	const struct kvw_geometry *geometry;

	snprintf(set_planes, sizeof(set_planes), "pool.a.planes=%s", planes);
	snprintf(set_layers, sizeof(set_layers), "pool.a.layers=%s", layers);
	loaded = CONFIG_LOAD("[pool a]\nblocks=1\nblock_tokens=32\n", "--set", set_planes, "--set",
			     set_layers);
	config_assert_loads(&loaded);
	geometry = &loaded.config.pools[0].geometry;
	assert_int_equal(geometry->plane_count, count);
	for (uint32_t i = 0; i < count; i++) {
		const struct kvw_plane *plane = &geometry->planes[i];

		assert_int_equal(plane->layer, rows[i].layer);
		assert_int_equal(plane->role, rows[i].role);
		assert_int_equal(plane->dtype, rows[i].dtype);
		assert_int_equal(plane->layout, rows[i].layout);
		assert_int_equal(plane->heads, rows[i].heads);
		assert_int_equal(plane->dim, rows[i].dim);
		assert_int_equal(plane->page_bytes, rows[i].page_bytes);
		assert_int_equal(plane->kernel_page_tokens, 32);
	}
	kvd_config_free(&loaded.config);
}

static void planes_go_by_layer_then_by_the_order_given(void **state)
{
	static const struct plane_row rows[] = {
		{0, KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 4, 128, 32768},
		{0, KVW_ROLE_V, KVW_DTYPE_F16, KVW_LAYOUT_HND, 4, 64, 16384},
		{1, KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 4, 128, 32768},
		{1, KVW_ROLE_V, KVW_DTYPE_F16, KVW_LAYOUT_HND, 4, 64, 16384},
		{1, KVW_ROLE_INDEX_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 1, 128, 8192},
		{2, KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 4, 128, 32768},
		{2, KVW_ROLE_V, KVW_DTYPE_F16, KVW_LAYOUT_HND, 4, 64, 16384},
		{2, KVW_ROLE_INDEX_K, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 1, 128, 8192},
	};

	(void)state;
	assert_planes("k bf16 4x128 nhd, v f16 hnd 4x64,index_k  bf16 1x128 layers 1-2", "3", rows, 8);
}

static void every_latent_is_known(void **state)
{
	static const struct plane_row rows[][1] = {
		{{0, KVW_ROLE_LATENT, KVW_DTYPE_BF16, KVW_LAYOUT_NHD, 1, 576, 36864}},
		{{0, KVW_ROLE_LATENT, KVW_DTYPE_F16, KVW_LAYOUT_NHD, 1, 576, 36864}},
		{{0, KVW_ROLE_LATENT, KVW_DTYPE_F32, KVW_LAYOUT_NHD, 1, 576, 73728}},
		{{0, KVW_ROLE_LATENT, KVW_DTYPE_FP8_V32, KVW_LAYOUT_NHD, 1, 1, 20992}},
		{{0, KVW_ROLE_OPAQUE, KVW_DTYPE_U8, KVW_LAYOUT_NHD, 1, 16, 16}},
	};

	(void)state;
	assert_planes("latent bf16", "1", rows[0], 1);
	assert_planes("latent f16", "1", rows[1], 1);
	assert_planes("latent f32", "1", rows[2], 1);
	assert_planes("latent fp8_v32", "1", rows[3], 1);
	assert_planes("opaque 16", "1", rows[4], 1);
}

static void one_role_may_differ_between_layers(void **state)
{
	static const struct plane_row rows[] = {
		{0, KVW_ROLE_K, KVW_DTYPE_E4M3, KVW_LAYOUT_NHD, 8, 128, 32768},
		{2, KVW_ROLE_K, KVW_DTYPE_BF16, KVW_LAYOUT_HND, 2, 64, 8192},
	};

	(void)state;
	assert_planes("k bf16 2x64 hnd layers 2, k e4m3 8x128 layers 0-0", "3", rows, 2);
}

static void sixty_layers_of_three_planes_fit(void **state)
{
	struct config_loaded loaded =
		CONFIG_LOAD("[pool m]\nblocks=10\nblock_tokens=128\nlayers=60\n"
			    "planes = k bf16 4x128 nhd, v bf16 4x128 nhd, index_k bf16 1x128 layers 3-59\n");

	(void)state;
	config_assert_loads(&loaded);
	assert_int_equal(loaded.config.pools[0].geometry.plane_count, 177);
	kvd_config_free(&loaded.config);
}

static void wrong_planes_are_refused_with_the_item(void **state)
{
	static const struct refusal cases[] = {
		{"", {"planes", "role"}},
		{"latent", {"'latent'", "dtype"}},
		{"latent bf17", {"'latent bf17'", "dtype"}},
		{"latent e4m3", {"fp8_v32"}},
		{"latent u8", {"dtype"}},
		{"latent bf16 1x576", {"leave HxD out"}},
		{"latent bf16 nhd", {"leave it out"}},
		{"latents bf16", {"role", "index_k"}},
		{"k bf16", {"'k bf16'", "HxD"}},
		{"k bf16 4x", {"HxD"}},
		{"k bf16 x128", {"HxD"}},
		{"k bf16 0x128", {"HxD"}},
		{"k bf16 4x0", {"HxD"}},
		{"k bf16 4097x1", {"4096"}},
		{"k bf16 1x65537", {"65536"}},
		{"k bf16 4x128 4x128", {"HxD"}},
		{"k bf16 4x128 nhd hnd", {"too many"}},
		{"k bf16 4x128 rows", {"not known"}},
		{"k fp8_v32 4x128", {"latent only"}},
		{"k bf16 4x128 layers", {"layers 3-59"}},
		{"k bf16 4x128 layers x", {"layers 3-59"}},
		{"k bf16 4x128 layers 2-1", {"layers 3-59"}},
		{"k bf16 4x128 layers 0-4", {"layers - 1"}},
		{"k bf16 4x128 layers 0-3 layers 1", {"too many"}},
		{"index_k bf16 2x128", {"one head"}},
		{"opaque", {"opaque"}},
		{"opaque 0", {"1 to"}},
		{"opaque x", {"opaque 16"}},
		{"opaque 16 1x2", {"leave HxD out"}},
		{"opaque 16 hnd", {"leave it out"}},
		{"k bf16 4x128, k bf16 4x128", {"layer 0", "role k twice"}},
		{"k bf16 4x128 layers 0-2, k bf16 1x1 layers 2-3", {"layer 2", "role k twice"}},
		{"k bf16 4x128,", {"role"}},
	};

	(void)state;
	for (unsigned i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char text[256];
		struct config_loaded loaded;

		snprintf(text, sizeof(text), "[pool a]\nblocks=1\nlayers=4\nplanes=%s\n", cases[i].text);
		loaded = CONFIG_LOAD(text);
		config_assert_refused(&loaded, cases[i].needs, text);
		assert_non_null(strstr(loaded.error, ":4: [pool a] planes = '"));
	}
}

static void more_planes_than_the_limit_are_refused(void **state)
{
	struct config_loaded loaded =
		CONFIG_LOAD("[pool a]\nblocks=1\nlayers=257\nplanes=k bf16 1x8, v bf16 1x8\n");
	static const char *const needs[4] = {":4:", "planes", "limit of 512"};

	(void)state;
	config_assert_refused(&loaded, needs, "514 planes");
}

static void a_pool_past_all_memory_is_refused(void **state)
{
	struct config_loaded loaded =
		CONFIG_LOAD("[pool a]\nblocks=67108864\nblock_tokens=65536\nplanes=k f32 4096x65536\n");
	static const char *const needs[4] = {":1:", "[pool a]", "67108864", "2^62"};

	(void)state;
	config_assert_refused(&loaded, needs, "too large");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(planes_go_by_layer_then_by_the_order_given),
		cmocka_unit_test(every_latent_is_known),
		cmocka_unit_test(one_role_may_differ_between_layers),
		cmocka_unit_test(sixty_layers_of_three_planes_fit),
		cmocka_unit_test(wrong_planes_are_refused_with_the_item),
		cmocka_unit_test(more_planes_than_the_limit_are_refused),
		cmocka_unit_test(a_pool_past_all_memory_is_refused),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, config_load_setup, config_load_teardown);
}
