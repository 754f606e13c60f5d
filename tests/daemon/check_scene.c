/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the scene, and reads the texts of the deep check.
 */
#include "check_scene.h"

#include <stdio.h>
#include <string.h>

void scene_create(struct scene *scene)
{
	struct books *books = &scene->books;
	struct kvd_engine *engine;
	int i;

	books_create(books, 16, 2);
	engine = books_engine(books, 0);
	scene->engine = engine;
	books_fill(books, engine, "ab");
	books_fill(books, engine, "ac");
	row_write(books, engine, &scene->held, "de", 0, 0);
	row_write(books, engine, &scene->pending, "fg", 2, 10);
	for (i = 0; i < 2; i++)
		assert_int_equal(kvd_pool_grant(books->pool, engine, &scene->leased[i]), 0);
	assert_int_equal(kvd_pool_grant(books->pool, engine, &scene->draining), 0);
	assert_int_equal(kvd_engine_return(engine, scene->draining, 1, 1, 5), 0);
	scene->a = books_find(books, engine, "a");
	scene->b = books_find(books, engine, "ab");
	scene->c = books_find(books, engine, "ac");
	scene->d = books_find(books, engine, "d");
	scene->e = books_find(books, engine, "de");
	scene->f = books_find(books, engine, "f");
	scene->g = books_find(books, engine, "fg");
	books_check(books);
}

/* Whether some fault contains all of `parts` (NULL ends them). */
static bool is_named(const struct kvd_check_result *result, const char *const *parts)
{
	uint32_t i;

	for (i = 0; i < result->texts; i++) {
		uint32_t part = 0;

		while (parts[part] && strstr(result->text[i], parts[part]))
			part++;
		if (!parts[part])
			return true;
	}
	return false;
}

/*
 * Runs a whole check, in one go or in slices, and wants a fault that names block (unless it is < 0)
 * and `what`.
 */
static void assert_named_by(struct scene *scene, uint32_t budget, int32_t id, const char *what)
{
	char block[32] = "pool 3";
	const char *const parts[] = {block, what, NULL};
	struct kvd_check *check;

	if (id >= 0)
		snprintf(block, sizeof(block), "pool 3 block %d:", id);
	assert_int_equal(kvd_check_start(scene->books.pool, &check), 0);
	while (!kvd_check_step(check, budget))
		;
	if (!kvd_check_result(check)->faults)
		fail_msg("damage of '%s' of %s was not found", what, block);
	if (!is_named(kvd_check_result(check), parts))
		fail_msg("'%s' of %s is not named, but: %s", what, block, kvd_check_result(check)->text[0]);
	kvd_check_end(check);
}

void assert_named(struct scene *scene, int32_t id, const char *what)
{
	assert_named_by(scene, UINT32_MAX, id, what);
	assert_named_by(scene, 3, id, what);
}

void assert_named_in_full(struct scene *scene, int32_t id, const char *what)
{
	assert_named_by(scene, UINT32_MAX, id, what);
}
