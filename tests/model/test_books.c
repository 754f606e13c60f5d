/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random operations on a pool's books, each followed by a comparison of everything with the model and by the
 * deep check.
 *
 *   test_prop_books [SECONDS [OPERATIONS]]     one run a seed until the time is over; KVP_SEED repeats one
 *
 * A test like this is worth what it finds. Planted by hand, one at a time, from seed 4000 on (runs of 2,500
 * operations), and found after so many operations:
 *	207    a grant does not raise the generation
 *	349    a step counts as reached one step too early
 *	415    steps out of order are not clamped
 *	365    a duplicate adds no reference to the canonical block
 *	475    a complete copy does not replace a pending one
 *	1,267  the children of a replaced block keep the generation of their old parent
 *	581    truncate drops at once instead of at its step
 *	649    release drops a hold's first block first
 *	586    a block is evicted while others are free
 *	586    the policy evicts its youngest block (the daemon's own assertion)
 *	807    a parent whose busy child was orphaned is never evictable
 *	201    blocks of the dead are freed before the proof
 *	5,524  a dead writer's reached step counts for nothing
 *	5,914  what a frozen engine drains is freed
 *	2,501  descendants of a doomed block stay findable; holds of the dead stay
 *	1,430  open matches others' pending blocks unasked
 *	175    a failed open keeps a block; 2,413: an aborted grant does
 *	146    the quota forgets draining blocks; 10,913: it lets one block too many pass
 *	938    a stale generation is accepted
 *	258    the word in the directory is not written; 586: an entry stays in its bucket
 *	2,047  open matches pending blocks whose writer has lost its session; 49,747: they stay canonical
 *	5,764  a bucket with a block left out has an empty entry; 5,990: it stays full for ever
 *	1,267  unreferenced blocks are counted as orphaned; 27,063: a publish refused by a quota is not counted
 */
#include "world.h"

#include <stdio.h>
#include <stdlib.h>

#define DEFAULT_SECONDS 15
#define DEFAULT_OPERATIONS 2500

static struct world world;
static unsigned long seconds = DEFAULT_SECONDS;
static unsigned long operations = DEFAULT_OPERATIONS;

static void run(uint64_t seed)
{
	world_create(&world, seed);
	while (world.op < operations)
		world_operate(&world);
	world_drain(&world);
	world_destroy(&world);
}

static void books_agree_with_the_model(void **state)
{
	uint64_t seed = kvt_seed();
	uint64_t end = kvt_now_ns() + seconds * 1000000000u;
	uint64_t runs = 0;

	(void)state;
	do {
		run(seed + runs);
		runs++;
	} while (kvt_now_ns() < end);
	printf("%lu runs of %lu operations\n", (unsigned long)runs, operations);
}

/* A frozen engine's orphan loses its last reference after its step was latched and before a slice saw that. */
static void a_seen_step_and_a_latched_one_are_told_apart(void **state)
{
	(void)state;
	run(11245769296666u);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_seen_step_and_a_latched_one_are_told_apart),
		cmocka_unit_test(books_agree_with_the_model),
	};

	if (argc > 1)
		seconds = strtoul(argv[1], NULL, 10);
	if (argc > 2)
		operations = strtoul(argv[2], NULL, 10);
	kvt_watchdog((unsigned)seconds + 60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
