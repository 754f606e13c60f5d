/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pool with a block of every living kind, to be damaged; and what the tests of the deep check want
 * of it then.
 */
#ifndef KVPOOL_TEST_CHECK_SCENE_H
#define KVPOOL_TEST_CHECK_SCENE_H

#include "books.h"

/*
 * "ab" and "ac" are cached and unreferenced, "de" is held and complete, "fg" pending; two blocks
 * leased, one draining.
 */
struct scene {
	struct books books;
	struct kvd_engine *engine;
	struct row held;
	struct row pending;
	int32_t a, b, c, d, e, f, g;
	int32_t leased[2];
	int32_t draining;
};

void scene_create(struct scene *scene);

/*
 * Wants a fault that names the block (unless id is < 0) and `what`, from a whole check and from one in
 * slices.
 */
void assert_named(struct scene *scene, int32_t id, const char *what);
/* What only a check that runs without a stop can see. */
void assert_named_in_full(struct scene *scene, int32_t id, const char *what);

#endif
