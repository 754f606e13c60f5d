/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hundred clients killed at random points, some after a number of operations by themselves, some from
 * outside, some between two system calls, some between two instructions, some while they attach; some with a
 * child that keeps the mapping or the socket. Beside them one engine goes on, and looks at every byte that
 * it is served.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include <kvpool/error.h>

#include "content.h"
#include "crash_kill.h"
#include "facts.h"
#include "trace.h"
#include "victim.h"

/* The first ones fill caches and lists of the daemon that it keeps. */
#define WARM_UP 20u
#define KILLS 100u
#define AT_ONCE 3u
#define CHAINS 24u
#define MOST_BLOCKS 12u

enum way { WAY_SELF, WAY_OUTSIDE, WAY_TRACED, WAY_EARLY, WAYS };

struct scene {
	struct kvt_daemon *daemon;
	struct kvt_raw *admin;
	struct kvt_raw *engine; /* that goes on */
	uint64_t block_bytes;
	struct kvt_rng rng;
	int can_trace;
	uint32_t kills;
	uint32_t by_way[WAYS];
	uint32_t verified; /* blocks that others wrote */
	int fds;           /* of the daemon, before the first victim */
};

static uint32_t pick(struct scene *scene, uint32_t bound)
{
	return (uint32_t)kvt_rng_below(&scene->rng, bound);
}

/* -------------------------------------------------------------- the engine that goes on */

static void verify_matched(struct scene *scene, uint64_t chain, uint32_t matched)
{
	const struct kvw_answer *answers = kvt_answers(scene->engine, 0);
	uint32_t i;

	for (i = 0; i < matched; i++) {
		assert_int_equal(answers[i].flags, KVW_ANSWER_MATCHED);
		assert_true(kvt_holds_block(scene->engine, scene->block_bytes, answers[i].id, chain, i));
		scene->verified += answers[i].writer != scene->engine->session;
	}
}

static void go_on(struct scene *scene)
{
	struct kvt_raw *engine = scene->engine;
	uint64_t chain = 1 + pick(scene, CHAINS);
	uint32_t count = 1 + pick(scene, MOST_BLOCKS);
	struct kvw_completion open = kvt_open(engine, 0, chain, count, count);
	struct kvw_completion done;
	uint32_t i;

	/* Victims hold what they like. */
	if (open.status == -KVP_ENOBLOCKS)
		return;
	assert_int_equal(open.status, 0);
	verify_matched(scene, chain, open.matched);
	for (i = open.matched; i < count; i++)
		kvt_write_block(engine, scene->block_bytes, kvt_answers(engine, 0)[i].id, chain, i);
	done = kvt_publish(engine, 0, open.hold, open.matched, open.granted, 0, 0);
	assert_int_equal(done.status, 0);
	/* A victim may have published the same meanwhile. */
	for (i = open.matched; i < count; i++)
		if (kvt_answers(engine, 0)[i].flags & KVW_ANSWER_DUPLICATE)
			kvt_return_blocks(engine, 0, i, 1);
	kvt_release(engine, open.hold);
}

/* -------------------------------------------------------------- victims */

static struct kvt_victim_order random_order(struct scene *scene, enum way way)
{
	struct kvt_victim_order order = {
		.work = pick(scene, 4) ? KVT_VICTIM_RANDOM : KVT_VICTIM_LIBRARY,
		.child = pick(scene, 3) ? KVT_NO_CHILD : KVT_CHILD_MAPS + pick(scene, 2),
		.seed = kvt_rng_next(&scene->rng),
		.ops = way == WAY_SELF ? 1 + pick(scene, 200) : 0,
		.trace = way == WAY_TRACED  ? KVT_TRACED_READY
			 : way == WAY_EARLY ? KVT_TRACED_START
					    : KVT_NOT_TRACED,
	};

	/* The library's mappings are not inherited, and it has no report between its start and its attach. */
	if (order.work == KVT_VICTIM_LIBRARY) {
		order.child = KVT_NO_CHILD;
		if (way == WAY_TRACED)
			order.work = KVT_VICTIM_RANDOM;
	}
	if (way == WAY_EARLY)
		order.child = KVT_NO_CHILD;
	return order;
}

static void kill_one(struct scene *scene, struct kvt_victim *victim, enum way way)
{
	uint32_t rounds = pick(scene, 40);

	if (way == WAY_TRACED || way == WAY_EARLY) {
		kvt_trace_and_kill(victim->pid, pick(scene, 400), pick(scene, 2) ? pick(scene, 3000) : 0);
	} else if (way == WAY_OUTSIDE) {
		while (rounds--)
			go_on(scene);
		assert_return_code(kill(victim->pid, SIGKILL), errno);
	}
	kvt_victim_reap(victim);
	scene->by_way[way]++;
	scene->kills++;
}

/* The control of "nothing is left": while a child still maps, something is. */
static void see_it_wait(struct scene *scene, const struct kvt_victim *victim)
{
	struct kvt_client_state client;

	kvt_wait_state(scene->admin, victim->told.session, "last mapping");
	go_on(scene);
	client = kvt_client_state(scene->admin, victim->told.session);
	assert_true(client.found);
	assert_int_equal(client.leased, 0);
	assert_int_equal(client.references, 0);
	assert_int_equal(client.holds, 0);
}

static void kill_some(struct scene *scene)
{
	struct kvt_victim victims[AT_ONCE];
	struct kvt_victim_order orders[AT_ONCE];
	enum way ways[AT_ONCE];
	uint32_t count = 1 + pick(scene, AT_ONCE);
	uint32_t i;

	for (i = 0; i < count; i++) {
		ways[i] = pick(scene, scene->can_trace ? WAYS : WAY_TRACED);
		orders[i] = random_order(scene, ways[i]);
		victims[i] = kvt_victim_start(scene->daemon, &orders[i]);
	}
	for (i = 0; i < count; i++)
		kill_one(scene, &victims[i], ways[i]);
	for (i = 0; i < count; i++) {
		if (orders[i].child == KVT_CHILD_MAPS)
			see_it_wait(scene, &victims[i]);
		else if (orders[i].trace != KVT_TRACED_START)
			kvt_wait_gone(scene->admin, victims[i].told.session);
		kvt_victim_forget(&victims[i]);
	}
	kvt_wait_sessions(scene->admin, 2);
	kvt_must_check(scene->admin);
	go_on(scene);
}

static struct kvt_facts rest(struct scene *scene)
{
	kvt_flush(scene->admin);
	kvt_wait_free(scene->admin, KVT_CRASH_BLOCKS);
	kvt_wait_fds(scene->daemon, scene->fds);
	return kvt_facts(scene->daemon, scene->admin);
}

static void compare(const struct scene *scene, const struct kvt_facts *before, const struct kvt_facts *after)
{
	fprintf(stderr,
		"%u kills (%u by itself, %u from outside, %u traced, %u while attaching), %u foreign blocks "
		"verified; "
		"descriptors %d -> %d, RSS %ld -> %ld KiB\n",
		scene->kills, scene->by_way[WAY_SELF], scene->by_way[WAY_OUTSIDE], scene->by_way[WAY_TRACED],
		scene->by_way[WAY_EARLY], scene->verified, before->fds, after->fds, before->rss_kib,
		after->rss_kib);
	assert_int_equal(after->sessions, before->sessions);
	assert_in_range(after->rss_kib, 1, before->rss_kib + KVT_RSS_SLACK_KIB);
	assert_true(scene->verified > 0);
}

void random_kills_leave_nothing(void **state)
{
	struct scene scene = {
		.daemon = *state,
		.admin = kvt_raw_hello(*state),
		.engine = kvt_raw_engine(*state),
		.rng = {.state = kvt_seed()},
		.can_trace = kvt_can_trace(),
	};
	struct kvt_facts before;
	struct kvt_facts after;

	scene.block_bytes = kvt_block_bytes(scene.engine, "");
	kvt_wait_lent_fds(scene.daemon, 1);
	scene.fds = kvt_facts(scene.daemon, scene.admin).fds;
	while (scene.kills < WARM_UP)
		kill_some(&scene);
	before = rest(&scene);
	scene.kills = 0;
	memset(scene.by_way, 0, sizeof(scene.by_way));
	while (scene.kills < KILLS)
		kill_some(&scene);
	after = rest(&scene);
	compare(&scene, &before, &after);
	kvt_raw_close(scene.engine);
	kvt_raw_close(scene.admin);
	kvt_crash_leaves_nothing(*state);
}
