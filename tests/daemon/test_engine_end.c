/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of engines, at every interesting moment: what freezes, what completes, what is orphaned,
 * what waits for the proof.
 */
#include <kvpool/error.h>

#include "books.h"

/* One engine with a block of every kind it can have, and another that shares what can be shared. */
struct scene {
	struct books books;
	struct kvd_engine *engine;
	struct kvd_engine *other;
	struct row cached;  /* "ab", complete, referred to by both */
	struct row pending; /* "cd", pending at step 10 of timeline 0 */
	struct row shared;  /* "abx", of the other: refers to "ab" */
	struct row coming;  /* "cd", of the other: refers to the pending blocks */
	int32_t leased;
	int32_t draining; /* until step 12 */
};

static void scene_create(struct scene *scene)
{
	struct books *books = &scene->books;

	books_create(books, 32, 2);
	scene->engine = books_engine(books, 0);
	scene->other = books_engine(books, 1);
	row_write(books, scene->engine, &scene->cached, "ab", 0, 0);
	row_write(books, scene->engine, &scene->pending, "cd", 0, 10);
	assert_int_equal(row_open(books, scene->other, &scene->shared, "abx", 1), 0);
	assert_int_equal(row_open_coming(books, scene->other, &scene->coming, "cd", 0), 0);
	assert_int_equal(scene->coming.matched, 2);
	assert_int_equal(kvd_pool_grant(books->pool, scene->engine, &scene->leased), 0);
	assert_int_equal(kvd_pool_grant(books->pool, scene->engine, &scene->draining), 0);
	assert_int_equal(kvd_engine_return(scene->engine, scene->draining, 1, 0, 12), 0);
	books_check(books);
}

static void freeze_holds_everything_still(void **unused)
{
	struct scene scene;
	struct books *books = &scene.books;

	(void)unused;
	scene_create(&scene);
	kvd_engine_freeze(scene.engine);
	books_check(books);
	books_teardown(books, scene.engine);
	assert_state(books, scene.leased, FROZEN);
	assert_state(books, scene.draining, FROZEN);
	assert_state(books, scene.engine->sink, FROZEN);
	assert_state(books, scene.pending.answers[0].id, PENDING);
	assert_int_equal(books_references(books, scene.cached.answers[0].id), 2);
	assert_int_equal(kvd_engine_waiting(scene.engine), 2);
	assert_false(kvd_engine_empty(scene.engine));
	/* Its steps still count for what others wait for, and for nothing else. */
	books_reach(books, scene.engine, 0, 20);
	assert_state(books, scene.pending.answers[1].id, CACHED);
	assert_state(books, scene.draining, FROZEN);
	assert_int_equal(books_references(books, scene.pending.answers[0].id), 2);
	books_destroy(books);
}

static void released_hold_of_a_frozen_engine_stays(void **unused)
{
	struct scene scene;
	struct books *books = &scene.books;

	(void)unused;
	scene_create(&scene);
	assert_int_equal(kvd_engine_release(scene.engine, scene.cached.hold, 0, 3), 0);
	kvd_engine_freeze(scene.engine);
	books_reach(books, scene.engine, 0, 20);
	assert_int_equal(books_references(books, scene.cached.answers[0].id), 2);
	/* Reached before the blocks were frozen one by one: the order of the two makes no difference. */
	assert_state(books, scene.draining, FROZEN);
	books_teardown(books, scene.engine);
	kvd_engine_die(scene.engine);
	books_teardown(books, scene.engine);
	assert_int_equal(books_references(books, scene.cached.answers[0].id), 1);
	assert_int_equal(scene.engine->hold_count, 0);
	books_destroy(books);
}

static void death_quarantines_and_orphans(void **unused)
{
	struct scene scene;
	struct books *books = &scene.books;

	(void)unused;
	scene_create(&scene);
	kvd_engine_die(scene.engine);
	books_check(books);
	books_teardown(books, scene.engine);
	assert_state(books, scene.leased, QUARANTINED);
	assert_state(books, scene.draining, QUARANTINED);
	assert_state(books, scene.pending.answers[0].id, ORPHAN);
	assert_state(books, scene.pending.answers[1].id, ORPHAN);
	assert_int_equal(books_find(books, scene.engine, "c"), -1);
	assert_state(books, scene.cached.answers[1].id, CACHED);
	assert_int_equal(books_references(books, scene.cached.answers[1].id), 1);
	assert_int_equal(scene.engine->hold_count, 0);
	assert_int_equal(books->tenant[0].used_blocks, 4);
	assert_int_equal(kvd_engine_waiting(scene.engine), 2);
	assert_int_equal(books_counter(books, KVW_COUNTER_orphaned_blocks), 2);
	/* The last reference of the other: the writer is dead, and not proved gone. */
	assert_int_equal(row_release(books, &scene.coming, 0, 0), 0);
	assert_state(books, scene.pending.answers[0].id, QUARANTINED);
	assert_int_equal(kvd_engine_waiting(scene.engine), 4);
	kvd_engine_prove_gone(scene.engine);
	books_check(books);
	books_teardown(books, scene.engine);
	assert_state(books, scene.leased, FREE);
	assert_state(books, scene.pending.answers[0].id, FREE);
	assert_true(kvd_engine_empty(scene.engine));
	assert_int_equal(books->tenant[0].used_blocks, 0);
	books_destroy(books);
}

static void steps_reached_before_the_death_complete(void **unused)
{
	struct scene scene;
	struct books *books = &scene.books;

	(void)unused;
	scene_create(&scene);
	/* Latched, and not carried out yet. */
	kvd_engine_latch(scene.engine, 0, 10);
	kvd_engine_die(scene.engine);
	books_teardown(books, scene.engine);
	assert_state(books, scene.pending.answers[0].id, CACHED);
	assert_state(books, scene.pending.answers[1].id, CACHED);
	assert_int_equal(books_references(books, scene.pending.answers[1].id), 1);
	assert_int_equal(books_counter(books, KVW_COUNTER_orphaned_blocks), 0);
	assert_int_equal(kvd_engine_progress(scene.engine, 1), 1);
	books_destroy(books);
}

static void proof_while_others_refer_leaves_orphans_to_the_pool(void **unused)
{
	struct scene scene;
	struct books *books = &scene.books;
	int32_t orphan;

	(void)unused;
	scene_create(&scene);
	orphan = scene.pending.answers[1].id;
	kvd_engine_prove_gone(scene.engine);
	books_check(books);
	books_teardown(books, scene.engine);
	assert_true(kvd_engine_empty(scene.engine));
	assert_state(books, scene.leased, FREE);
	assert_state(books, orphan, ORPHAN);
	assert_int_equal(books->pool->orphans.length, 2);
	assert_int_equal(books->tenant[0].used_blocks, 0);
	kvd_engine_destroy(scene.engine);
	books_check(books);
	assert_int_equal(row_release(books, &scene.coming, 0, 0), 0);
	assert_state(books, orphan, FREE);
	assert_int_equal(books->pool->orphans.length, 0);
	books_destroy(books);
}

static void unreferenced_pending_block_of_the_dead_is_quarantined(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 4, 1);
	engine = books_engine(&books, 0);
	row_write(&books, engine, &row, "a", 0, 10);
	assert_int_equal(row_release(&books, &row, 1, 0), 0);
	kvd_engine_die(engine);
	books_teardown(&books, engine);
	assert_state(&books, row.answers[0].id, QUARANTINED);
	assert_int_equal(books_counter(&books, KVW_COUNTER_quarantined_blocks), 1);
	assert_int_equal(books_counter(&books, KVW_COUNTER_orphaned_blocks), 0);
	books_destroy(&books);
}

/* Others have built on a block whose writer dies: what is behind it can't be found any more either. */
static void orphaned_block_takes_its_descendants_along(void **unused)
{
	struct books books;
	struct kvd_engine *writer, *other;
	struct row root, complete, pending, released, again;

	(void)unused;
	books_create(&books, 16, 2);
	writer = books_engine(&books, 0);
	other = books_engine(&books, 1);
	row_write(&books, writer, &root, "a", 0, 10);
	assert_int_equal(row_open_coming(&books, other, &complete, "abc", 2), 0);
	assert_int_equal(row_publish(&books, &complete, 3, 0, 0), 0);
	assert_int_equal(row_open_coming(&books, other, &pending, "abde", 2), 0);
	assert_int_equal(row_publish(&books, &pending, 4, 1, 7), 0);
	assert_int_equal(row_open_coming(&books, other, &released, "ax", 1), 0);
	assert_int_equal(row_publish(&books, &released, 2, 0, 0), 0);
	assert_int_equal(row_release(&books, &released, 0, 0), 0);
	assert_state(&books, released.answers[1].id, CACHED);
	assert_int_equal(books.pool->evictable, 1);
	/* Released once, and in use again. */
	assert_int_equal(row_open_coming(&books, other, &again, "ay", 1), 0);
	assert_int_equal(row_publish(&books, &again, 2, 0, 0), 0);
	assert_int_equal(row_release(&books, &again, 0, 0), 0);
	assert_int_equal(row_open_coming(&books, other, &again, "ay", 0), 0);
	assert_int_equal(again.matched, 2);
	kvd_engine_die(writer);
	books_teardown(&books, writer);
	assert_state(&books, again.answers[1].id, ORPHAN);
	assert_int_equal(books.pool->records[again.answers[1].id].last_use, 0);
	assert_state(&books, root.answers[0].id, ORPHAN);
	assert_state(&books, complete.answers[1].id, ORPHAN);
	assert_state(&books, complete.answers[2].id, ORPHAN);
	assert_state(&books, pending.answers[3].id, ORPHAN);
	assert_state(&books, released.answers[1].id, FREE);
	assert_int_equal(books_find(&books, other, "abc"), -1);
	assert_int_equal(books_counter(&books, KVW_COUNTER_orphaned_blocks), 6);
	/*
	 * A living writer's orphan waits for its step with its last reference, a complete one for
	 * nothing.
	 */
	assert_int_equal(row_release(&books, &pending, 2, 0), 0);
	assert_state(&books, pending.answers[3].id, DRAINING);
	assert_state(&books, pending.answers[1].id, ORPHAN);
	assert_int_equal(row_release(&books, &complete, 0, 0), 0);
	assert_state(&books, complete.answers[2].id, FREE);
	assert_state(&books, complete.answers[1].id, FREE);
	assert_state(&books, root.answers[0].id, ORPHAN);
	assert_int_equal(row_release(&books, &again, 0, 0), 0);
	assert_state(&books, again.answers[1].id, FREE);
	assert_state(&books, root.answers[0].id, QUARANTINED);
	books_reach(&books, other, 1, 7);
	assert_state(&books, pending.answers[3].id, FREE);
	books_destroy(&books);
}

static void publish_behind_an_orphan_is_lost(void **unused)
{
	struct books books;
	struct kvd_engine *writer, *other;
	struct row root, row;
	uint8_t *before;

	(void)unused;
	books_create(&books, 16, 2);
	writer = books_engine(&books, 0);
	other = books_engine(&books, 1);
	row_write(&books, writer, &root, "a", 0, 10);
	assert_int_equal(row_open_coming(&books, other, &row, "abc", 2), 0);
	kvd_engine_die(writer);
	books_teardown(&books, writer);
	before = books_snapshot(&books);
	assert_int_equal(row_publish(&books, &row, 2, 0, 0), -KVP_ELOST);
	books_assert_unchanged(&books, before);
	books_destroy(&books);
}

/*
 * A frozen engine's pending block loses its parent and its last reference: nothing of it may become
 * free before its end.
 */
static void orphan_of_a_frozen_engine_freezes(void **unused)
{
	struct books books;
	struct kvd_engine *writer, *frozen;
	struct row root, row;
	int32_t b;

	(void)unused;
	books_create(&books, 16, 2);
	writer = books_engine(&books, 0);
	frozen = books_engine(&books, 1);
	row_write(&books, writer, &root, "a", 0, 10);
	assert_int_equal(row_open_coming(&books, frozen, &row, "ab", 1), 0);
	assert_int_equal(row_publish(&books, &row, 2, 3, 9), 0);
	b = row.answers[1].id;
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	kvd_engine_freeze(frozen);
	books_teardown(&books, frozen);
	assert_state(&books, b, PENDING);
	kvd_engine_die(writer);
	books_teardown(&books, writer);
	assert_state(&books, b, FROZEN);
	books_reach(&books, frozen, 3, 9);
	assert_state(&books, b, FROZEN);
	kvd_engine_die(frozen);
	books_teardown(&books, frozen);
	assert_state(&books, b, QUARANTINED);
	books_destroy(&books);
}

/* Out of order on two timelines: the child is complete, its parent never will be. */
static void complete_child_of_a_lost_parent_is_lost(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	struct row row;

	(void)unused;
	books_create(&books, 16, 1);
	engine = books_engine(&books, 0);
	assert_int_equal(row_open(&books, engine, &row, "abc", 3), 0);
	assert_int_equal(row_publish(&books, &row, 1, 0, 10), 0);
	assert_int_equal(row_publish(&books, &row, 2, 1, 4), 0);
	assert_int_equal(row_publish(&books, &row, 3, 0, 11), 0);
	kvd_engine_latch(engine, 1, 4);
	kvd_engine_die(engine);
	books_teardown(&books, engine);
	assert_int_equal(books_find(&books, engine, "ab"), -1);
	assert_state(&books, row.answers[0].id, QUARANTINED);
	assert_state(&books, row.answers[1].id, FREE);
	assert_state(&books, row.answers[2].id, QUARANTINED);
	books_destroy(&books);
}

static void replaced_block_of_the_dead_is_quarantined(void **unused)
{
	struct books books;
	struct kvd_engine *writer, *other;
	struct row old, fresh;

	(void)unused;
	books_create(&books, 8, 2);
	writer = books_engine(&books, 0);
	other = books_engine(&books, 1);
	assert_int_equal(row_open(&books, other, &fresh, "a", 1), 0);
	row_write(&books, writer, &old, "a", 0, 10);
	assert_int_equal(row_publish(&books, &fresh, 1, 0, 0), 0);
	assert_state(&books, old.answers[0].id, ORPHAN);
	kvd_engine_die(writer);
	books_teardown(&books, writer);
	assert_state(&books, old.answers[0].id, QUARANTINED);
	assert_int_equal(books_find(&books, other, "a"), fresh.own[0].id);
	books_destroy(&books);
}

/* Between death and teardown another engine replaces what the dead left pending. */
static void pending_block_of_the_dead_can_still_be_replaced(void **unused)
{
	struct books books;
	struct kvd_engine *writer, *other;
	struct row older, old, fresh, child;

	(void)unused;
	books_create(&books, 8, 2);
	writer = books_engine(&books, 0);
	other = books_engine(&books, 1);
	assert_int_equal(row_open(&books, other, &fresh, "a", 1), 0);
	row_write(&books, writer, &older, "z", 0, 10);
	row_write(&books, writer, &old, "a", 0, 10);
	assert_int_equal(row_open_coming(&books, other, &child, "abc", 2), 0);
	assert_int_equal(row_publish(&books, &child, 3, 0, 0), 0);
	kvd_engine_die(writer);
	/*
	 * The teardown is on its way down the children when the root is replaced; it goes on with the
	 * other root.
	 */
	assert_int_equal(kvd_engine_teardown_step(writer, 1), 0);
	books_check(&books);
	assert_int_equal(row_publish(&books, &fresh, 1, 0, 0), 0);
	books_teardown(&books, writer);
	assert_int_equal(books_find(&books, other, "abc"), child.answers[2].id);
	assert_int_equal(books_find(&books, other, "a"), fresh.own[0].id);
	assert_state(&books, old.answers[0].id, ORPHAN);
	assert_int_equal(books_find(&books, other, "z"), -1);
	books_destroy(&books);
}

/* The block where the teardown stopped is evicted before it goes on. */
static void teardown_goes_on_when_its_place_is_gone(void **unused)
{
	struct books books;
	struct kvd_engine *writer, *other;
	struct row root, row;
	int32_t id;

	(void)unused;
	books_create(&books, 4, 2);
	writer = books_engine(&books, 0);
	other = books_engine(&books, 1);
	row_write(&books, writer, &root, "a", 0, 10);
	assert_int_equal(row_open_coming(&books, other, &row, "abcd", 3), 0);
	assert_int_equal(row_publish(&books, &row, 4, 0, 0), 0);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	kvd_engine_die(writer);
	assert_int_equal(kvd_engine_teardown_step(writer, 3), 0);
	books_check(&books);
	assert_int_equal(kvd_pool_grant(books.pool, other, &id), 0);
	books_check(&books);
	assert_int_equal(id, row.answers[3].id);
	books_teardown(&books, writer);
	assert_state(&books, row.answers[1].id, FREE);
	assert_state(&books, row.answers[2].id, FREE);
	assert_state(&books, id, LEASED);
	books_destroy(&books);
}

/* The same, and the block's place is taken by another findable block before the teardown goes on. */
static void teardown_knows_its_place_by_generation(void **unused)
{
	struct books books;
	struct kvd_engine *writer, *other;
	struct row root, row, fresh;

	(void)unused;
	books_create(&books, 4, 2);
	writer = books_engine(&books, 0);
	other = books_engine(&books, 1);
	row_write(&books, writer, &root, "a", 0, 10);
	assert_int_equal(row_open_coming(&books, other, &row, "abcd", 3), 0);
	assert_int_equal(row_publish(&books, &row, 4, 0, 0), 0);
	assert_int_equal(row_release(&books, &row, 0, 0), 0);
	kvd_engine_die(writer);
	assert_int_equal(kvd_engine_teardown_step(writer, 3), 0);
	row_write(&books, other, &fresh, "x", 0, 0);
	assert_int_equal(fresh.answers[0].id, row.answers[3].id);
	books_teardown(&books, writer);
	assert_int_equal(books_find(&books, other, "x"), fresh.answers[0].id);
	assert_int_equal(books_find(&books, other, "ab"), -1);
	books_destroy(&books);
}

static void second_end_changes_nothing(void **unused)
{
	struct scene scene;

	(void)unused;
	scene_create(&scene);
	kvd_engine_prove_gone(scene.engine);
	books_teardown(&scene.books, scene.engine);
	kvd_engine_die(scene.engine);
	kvd_engine_freeze(scene.engine);
	assert_int_equal(scene.engine->state, KVD_ENGINE_GONE);
	kvd_engine_prove_gone(scene.engine);
	assert_int_equal(kvd_engine_teardown_step(scene.engine, 1), 1);
	assert_int_equal(kvd_engine_teardown_step(scene.other, 1), 1);
	books_check(&scene.books);
	books_destroy(&scene.books);
	kvd_engine_destroy(NULL);
}

/* 10,000 leased blocks: many small steps, and the books are whole after each (looked at now and then). */
static void ten_thousand_leased_blocks_go_in_budgeted_steps(void **unused)
{
	struct books books;
	struct kvd_engine *engine;
	int32_t id;
	uint32_t steps = 0;
	uint32_t i;

	(void)unused;
	books_create(&books, 10000, 1);
	engine = books_engine(&books, 0);
	for (i = 0; i < 10000; i++)
		assert_int_equal(kvd_pool_grant(books.pool, engine, &id), 0);
	kvd_engine_die(engine);
	while (!kvd_engine_teardown_step(engine, 100))
		if (++steps % 32 == 0)
			books_check(&books);
	assert_in_range(steps, 100, 110);
	assert_int_equal(kvd_engine_waiting(engine), 10000);
	kvd_engine_prove_gone(engine);
	while (!kvd_engine_teardown_step(engine, 100))
		steps++;
	books_check(&books);
	assert_in_range(steps, 200, 220);
	assert_int_equal(books.pool->free.length, 10000);
	books_destroy(&books);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(freeze_holds_everything_still),
		cmocka_unit_test(released_hold_of_a_frozen_engine_stays),
		cmocka_unit_test(death_quarantines_and_orphans),
		cmocka_unit_test(steps_reached_before_the_death_complete),
		cmocka_unit_test(proof_while_others_refer_leaves_orphans_to_the_pool),
		cmocka_unit_test(unreferenced_pending_block_of_the_dead_is_quarantined),
		cmocka_unit_test(orphaned_block_takes_its_descendants_along),
		cmocka_unit_test(publish_behind_an_orphan_is_lost),
		cmocka_unit_test(orphan_of_a_frozen_engine_freezes),
		cmocka_unit_test(complete_child_of_a_lost_parent_is_lost),
		cmocka_unit_test(replaced_block_of_the_dead_is_quarantined),
		cmocka_unit_test(pending_block_of_the_dead_can_still_be_replaced),
		cmocka_unit_test(teardown_goes_on_when_its_place_is_gone),
		cmocka_unit_test(teardown_knows_its_place_by_generation),
		cmocka_unit_test(second_end_changes_nothing),
		cmocka_unit_test(ten_thousand_leased_blocks_go_in_budgeted_steps),
	};

	kvt_watchdog(120);
	return books_run_suite(tests);
}
