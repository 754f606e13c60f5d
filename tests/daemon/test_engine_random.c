/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations of three engines, with deaths, on a pool that is always too small: the deep check
 * holds after each of them, and in slices beside them; and the size of the budget makes no difference
 * to the outcome.
 */
#include <stdio.h>
#include <string.h>

#include <kvpool/error.h>

#include "books.h"

#define ENGINES 3u
#define ROWS 4u
#define BLOCKS 24u
#define NAME_LETTERS 6u

struct actor {
	struct kvd_engine *engine;
	struct row row[ROWS];
	bool open[ROWS];
	char names[ROWS][NAME_LETTERS + 1];
	uint64_t step;
	/* A job that runs beside the others' operations; NULL: none. */
	struct row *opening;
	struct row *publishing;
	struct kvd_publish publish;
};

struct world {
	struct books books;
	struct kvt_rng rng;
	struct actor actor[ENGINES];
	struct kvd_check *check; /* in slices; NULL: the whole check after each operation */
	bool sliced;
	uint64_t checks;
};

static uint32_t draw(struct world *world, uint32_t bound)
{
	return (uint32_t)kvt_rng_below(&world->rng, bound);
}

static uint32_t budget_of(struct world *world)
{
	return world->sliced ? 1 + draw(world, 3) : world->books.budget;
}

static void slice(struct world *world)
{
	if (!world->check)
		assert_int_equal(kvd_check_start(world->books.pool, &world->check), 0);
	if (!kvd_check_step(world->check, 1 + draw(world, 6)))
		return;
	if (kvd_check_result(world->check)->faults)
		fail_msg("sliced check: %s", kvd_check_result(world->check)->text[0]);
	kvd_check_end(world->check);
	world->check = NULL;
	world->checks++;
}

static void look(struct world *world)
{
	if (world->sliced)
		slice(world);
	else
		books_check(&world->books);
}

static void create_actor(struct world *world, uint32_t i)
{
	struct actor *actor = &world->actor[i];
	struct kvd_engine_params params = {
		.session = world->books.next_session++,
		.engine = world->books.next_session++,
		.namespace_id = 9,
		.hash_bytes = HASH_BYTES,
		.max_holds = 8,
		.max_hold_blocks = NAME_LETTERS,
		.tenant = &world->books.tenant[i % 2],
	};

	memset(actor, 0, sizeof(*actor));
	assert_int_equal(kvd_engine_create(world->books.pool, &params, &actor->engine), 0);
	actor->step = 1;
	look(world);
}

static uint64_t some_step(struct world *world, const struct actor *actor)
{
	return draw(world, 4) == 0 ? draw(world, 3) : actor->step + draw(world, 3);
}

/* -------- operations */

static void begin_open(struct world *world, struct actor *actor, uint32_t r)
{
	struct row *row = &actor->row[r];
	uint32_t letters = 1 + draw(world, NAME_LETTERS);
	uint32_t i;

	memset(row, 0, sizeof(*row));
	row->engine = actor->engine;
	row->name = actor->names[r];
	row->length = letters;
	for (i = 0; i < letters; i++) {
		struct kvt_rng rng = {.state = 5};
		uint32_t j;

		actor->names[r][i] = (char)('a' + draw(world, 2));
		for (j = 0; j <= i; j++)
			rng.state = kvt_rng_next(&rng) ^ (uint64_t)(uint8_t)actor->names[r][j];
		memcpy(row->hashes[i], &(uint64_t){kvt_rng_next(&rng)}, sizeof(uint64_t));
	}
	row->open = (struct kvd_open){
		.hashes = row->hashes[0],
		.count = letters,
		.max_match = draw(world, letters + 1),
		.want = letters,
		.max_new = draw(world, 8),
		.coming = draw(world, 2),
		.answers = row->answers,
	};
	actor->opening = row;
}

static void end_open(struct actor *actor, int ret)
{
	struct row *row = actor->opening;
	uint32_t i;

	actor->opening = NULL;
	if (ret < 0)
		return;
	row->hold = row->open.hold->id;
	row->published = row->matched = row->open.matched;
	for (i = 0; i < row->matched + row->open.granted; i++)
		row->own[i] = (struct kvw_block_ref){.id = row->answers[i].id,
						     .generation = row->answers[i].generation};
	row->length = row->matched + row->open.granted;
	actor->open[row - actor->row] = true;
}

static void begin_publish(struct world *world, struct actor *actor, struct row *row)
{
	if (row->published >= row->length)
		return;
	actor->publish = (struct kvd_publish){
		.hold = row->hold,
		.first = row->published,
		.count = 1 + draw(world, row->length - row->published),
		.timeline = draw(world, 2),
		.step = some_step(world, actor),
		.blocks = row->own + row->published,
		.hashes = row->hashes[row->published],
		.answers = row->answers + row->published,
	};
	actor->publishing = row;
}

/* Duplicates go back at once; after an error all that is left does. */
static void end_publish(struct world *world, struct actor *actor)
{
	struct row *row = actor->publishing;
	uint32_t i;

	actor->publishing = NULL;
	for (i = 0; i < actor->publish.done; i++) {
		uint32_t at = row->published + i;

		if (row->answers[at].flags & KVW_ANSWER_DUPLICATE)
			kvd_engine_return(actor->engine, row->own[at].id, row->own[at].generation,
					  draw(world, 2), some_step(world, actor));
	}
	row->published += actor->publish.done;
}

static void close_row(struct world *world, struct actor *actor, uint32_t r)
{
	struct row *row = &actor->row[r];
	uint32_t i;

	for (i = row->published; i < row->length; i++)
		assert_int_equal(kvd_engine_return(actor->engine, row->own[i].id, row->own[i].generation,
						   draw(world, 2), some_step(world, actor)),
				 0);
	assert_int_equal(
		kvd_engine_release(actor->engine, row->hold, draw(world, 2), some_step(world, actor)), 0);
	actor->open[r] = false;
}

static void truncate_row(struct world *world, struct actor *actor, struct row *row)
{
	uint32_t keep = draw(world, row->published + 1);
	uint32_t i;

	if (kvd_engine_truncate(actor->engine, row->hold, keep, draw(world, 2), some_step(world, actor)))
		return;
	/*
	 * What is leased behind the cut can be published into the same places; what was published
	 * there is gone.
	 */
	for (i = row->published; i < row->length; i++)
		kvd_engine_return(actor->engine, row->own[i].id, row->own[i].generation, 0,
				  some_step(world, actor));
	if (keep < row->published)
		row->published = keep;
	row->length = row->published;
}

static void run_job(struct world *world, struct actor *actor)
{
	int ret;

	if (actor->opening) {
		ret = kvd_open_step(actor->engine, &actor->opening->open, budget_of(world));
		if (ret)
			end_open(actor, ret);
	} else {
		ret = kvd_publish_step(actor->engine, &actor->publish, budget_of(world));
		if (ret)
			end_publish(world, actor);
	}
}

static void run_to_end(struct world *world, struct actor *actor)
{
	while (actor->opening || actor->publishing) {
		run_job(world, actor);
		look(world);
	}
}

static void act_on_row(struct world *world, struct actor *actor, uint32_t r)
{
	if (!actor->open[r])
		begin_open(world, actor, r);
	else if (draw(world, 8) == 0)
		truncate_row(world, actor, &actor->row[r]);
	else if (draw(world, 3) == 0)
		close_row(world, actor, r);
	else
		begin_publish(world, actor, &actor->row[r]);
	/*
	 * Beside others' operations only when the check is beside them too: budgets must not decide
	 * the outcome otherwise.
	 */
	if (!world->sliced)
		run_to_end(world, actor);
}

static void live(struct world *world, struct actor *actor)
{
	if (actor->opening || actor->publishing) {
		run_job(world, actor);
		return;
	}
	switch (draw(world, 4)) {
	case 0:
		kvd_engine_latch(actor->engine, draw(world, 2), actor->step++);
		break;
	case 1:
		while (!kvd_engine_progress(actor->engine, budget_of(world)) && !world->sliced)
			look(world);
		break;
	default:
		act_on_row(world, actor, draw(world, ROWS));
		break;
	}
}

/* An ended engine moves on, or is buried and another one comes. */
static void wither(struct world *world, uint32_t i)
{
	struct kvd_engine *engine = world->actor[i].engine;

	if (draw(world, 3) == 0)
		kvd_engine_latch(engine, draw(world, 2), world->actor[i].step++);
	while (!kvd_engine_progress(engine, budget_of(world)) && !world->sliced)
		look(world);
	while (!kvd_engine_teardown_step(engine, budget_of(world)) && !world->sliced)
		look(world);
	if (engine->state == KVD_ENGINE_GONE && kvd_engine_empty(engine)) {
		kvd_engine_destroy(engine);
		create_actor(world, i);
	} else if (draw(world, 6) == 0) {
		if (engine->state == KVD_ENGINE_FROZEN)
			kvd_engine_die(engine);
		else
			kvd_engine_prove_gone(engine);
	}
}

static void end_actor(struct world *world, struct actor *actor)
{
	if (actor->opening)
		kvd_open_abort(actor->engine, &actor->opening->open);
	actor->opening = NULL;
	actor->publishing = NULL;
	switch (draw(world, 3)) {
	case 0:
		kvd_engine_freeze(actor->engine);
		break;
	case 1:
		kvd_engine_die(actor->engine);
		break;
	default:
		kvd_engine_prove_gone(actor->engine);
		break;
	}
}

static void act(struct world *world)
{
	uint32_t i = draw(world, ENGINES);
	struct actor *actor = &world->actor[i];

	if (actor->engine->state != KVD_ENGINE_LIVE)
		wither(world, i);
	else if (draw(world, 150) == 0)
		end_actor(world, actor);
	else
		live(world, actor);
	look(world);
}

static void world_create(struct world *world, uint64_t seed, bool sliced, uint32_t budget)
{
	uint32_t i;

	memset(world, 0, sizeof(*world));
	books_create(&world->books, BLOCKS, ENGINES);
	world->books.budget = budget;
	world->books.tenant[0].quota_blocks = 20;
	world->rng.state = seed;
	world->sliced = sliced;
	for (i = 0; i < ENGINES; i++)
		create_actor(world, i);
}

static void world_destroy(struct world *world)
{
	uint32_t i;

	kvd_check_end(world->check);
	for (i = 0; i < ENGINES; i++)
		if (world->actor[i].opening)
			kvd_open_abort(world->actor[i].engine, &world->actor[i].opening->open);
	books_destroy(&world->books);
}

static uint64_t seed;

static void books_hold_after_every_operation(void **unused)
{
	struct world world;
	uint32_t i;

	(void)unused;
	world_create(&world, seed, false, UINT32_MAX);
	for (i = 0; i < 30000; i++)
		act(&world);
	assert_true(books_counter(&world.books, KVW_COUNTER_evicted_blocks) > 0);
	assert_true(books_counter(&world.books, KVW_COUNTER_orphaned_blocks) > 0);
	assert_true(books_counter(&world.books, KVW_COUNTER_duplicate_blocks) > 0);
	assert_true(books_counter(&world.books, KVW_COUNTER_no_blocks) > 0);
	assert_true(books_counter(&world.books, KVW_COUNTER_quota_refusals) > 0);
	assert_true(books_counter(&world.books, KVW_COUNTER_quarantined_blocks) > 0);
	world_destroy(&world);
}

static void check_in_slices_gives_no_false_alarm(void **unused)
{
	struct world world;
	uint32_t i;

	(void)unused;
	world_create(&world, seed + 1, true, UINT32_MAX);
	for (i = 0; i < 200000; i++)
		act(&world);
	assert_true(world.checks > 1000);
	world_destroy(&world);
}

static void budgets_do_not_decide_the_outcome(void **unused)
{
	struct world big, small;
	uint32_t i;

	(void)unused;
	world_create(&big, seed + 2, false, UINT32_MAX);
	world_create(&small, seed + 2, false, 1);
	for (i = 0; i < 5000; i++) {
		act(&big);
		act(&small);
		assert_memory_equal(big.books.state, small.books.state, big.books.state_bytes);
		assert_memory_equal(big.books.directory, small.books.directory, big.books.directory_bytes);
	}
	world_destroy(&small);
	world_destroy(&big);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(books_hold_after_every_operation),
		cmocka_unit_test(check_in_slices_gives_no_false_alarm),
		cmocka_unit_test(budgets_do_not_decide_the_outcome),
	};

	kvt_watchdog(300);
	seed = kvt_seed();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
