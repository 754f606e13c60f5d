/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long after the death of a large client its blocks are everybody's again.
 *
 *   kill_latency [--trials N] [--blocks N] [--judge] [--json] [EVENT_LOOP]
 *
 * A client leases so many blocks (10,000), writes all of them, refers to others' and has some pending; it is
 * SIGKILLed, so many times (20). Times run from the readiness of its pidfd, at which nothing of it is mapped
 * any more, so that the pidfd is also the proof: until the books are right (references, index, quota), and
 * until its blocks are free. They are asked of the daemon as by any administrator, so they contain the way
 * there and back. Exit 1 when something is wrong, with --judge also above 100 ms.
 */
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "content.h"
#include "facts.h"
#include "program.h"
#include "victim.h"

#define CHAIN 3u
#define MATCHED 8u
#define PENDING 8u
#define NEVER 1000u
#define BOUND_MS 100.0
#define MAX_TRIALS 1000u

struct options {
	uint32_t trials;
	uint32_t blocks;
	bool judge;
	bool json;
};

struct trial {
	double death_ms; /* from the kill to the pidfd */
	double books_ms;
	double free_ms;
};

struct scene {
	struct options options;
	struct kvt_daemon *daemon;
	struct kvt_raw *admin;
	struct kvt_raw *keeper; /* wrote what the victims match; its tenant is theirs */
	uint64_t tenant_blocks; /* with no victim alive */
	uint64_t free_blocks;
	struct trial trials[MAX_TRIALS];
};

static uint32_t number(const char *text, uint32_t most)
{
	char *end;
	unsigned long value = strtoul(text, &end, 10);

	if (!*text || *end || !value || value > most) {
		fprintf(stderr, "kill_latency: '%s' is no number from 1 to %u\n", text, most);
		exit(2);
	}
	return (uint32_t)value;
}

static struct options parse(int argc, char **argv)
{
	static const struct option table[] = {
		{"trials", required_argument, NULL, 't'},
		{"blocks", required_argument, NULL, 'b'},
		{"judge", no_argument, NULL, 'j'},
		{"json", no_argument, NULL, 'o'},
		{NULL, 0, NULL, 0},
	};
	struct options options = {.trials = 20, .blocks = 10000};
	int option;

	while ((option = getopt_long(argc, argv, "", table, NULL)) != -1) {
		if (option == 't')
			options.trials = number(optarg, MAX_TRIALS);
		else if (option == 'b')
			options.blocks = number(optarg, KVT_LEASED);
		else if (option == 'j')
			options.judge = true;
		else if (option == 'o')
			options.json = true;
		else
			exit(2);
	}
	return options;
}

static double ms_since(uint64_t start_ns)
{
	return (double)(kvt_now_ns() - start_ns) / 1e6;
}

/* -------------------------------------------------------------- one death */

/* References, index, quota: nothing of the dead one but blocks that wait for the proof. */
static bool books_right(struct scene *scene, const struct kvt_pool_state *pool)
{
	return !pool->leased && !pool->pending && !pool->frozen && !pool->orphan && !pool->referenced &&
	       pool->cached == MATCHED && pool->evictable == MATCHED &&
	       kvt_tenant_blocks(scene->admin, scene->keeper->session) ==
		       scene->tenant_blocks + pool->quarantined;
}

static void wait_for_right_books(struct scene *scene, uint64_t dead_ns, struct trial *trial)
{
	struct kvt_pool_state pool;

	trial->books_ms = -1;
	do {
		pool = kvt_pool_state(scene->admin);
		if (trial->books_ms < 0 && books_right(scene, &pool))
			trial->books_ms = ms_since(dead_ns);
	} while (pool.free != scene->free_blocks || trial->books_ms < 0);
	trial->free_ms = ms_since(dead_ns);
	/* What was asked before may not be later than what was asked after. */
	if (trial->free_ms < trial->books_ms)
		trial->free_ms = trial->books_ms;
}

static void wait_for_pidfd(pid_t pid, int pidfd)
{
	struct pollfd entry = {.fd = pidfd, .events = POLLIN};

	kill(pid, SIGKILL);
	assert_int_equal(poll(&entry, 1, -1), 1);
}

static void run_trial(struct scene *scene, struct trial *trial)
{
	const struct kvt_victim_order order = {.work = KVT_VICTIM_LEASE,
					       .chain = CHAIN,
					       .matched = MATCHED,
					       .published = PENDING,
					       .blocks = scene->options.blocks,
					       .step = NEVER};
	struct kvt_victim victim = kvt_victim_start(scene->daemon, &order);
	int pidfd = (int)syscall(SYS_pidfd_open, victim.pid, 0u);
	struct kvt_pool_state pool = kvt_pool_state(scene->admin);
	uint64_t start_ns;
	uint64_t dead_ns;

	assert_true(pidfd >= 0);
	/* The control: alive, it has all of this. */
	assert_int_equal(pool.leased, scene->options.blocks);
	assert_int_equal(pool.pending, PENDING);
	assert_int_equal(victim.told.matched, MATCHED);
	assert_int_equal(kvt_tenant_blocks(scene->admin, scene->keeper->session),
			 scene->tenant_blocks + scene->options.blocks + 2 * PENDING + MATCHED);
	start_ns = kvt_now_ns();
	wait_for_pidfd(victim.pid, pidfd);
	dead_ns = kvt_now_ns();
	trial->death_ms = (double)(dead_ns - start_ns) / 1e6;
	wait_for_right_books(scene, dead_ns, trial);
	kvt_victim_reap(&victim);
	kvt_victim_forget(&victim);
	close(pidfd);
	kvt_wait_gone(scene->admin, victim.told.session);
	kvt_must_check(scene->admin);
}

/* -------------------------------------------------------------- all of them */

static void publish_prefix(struct scene *scene)
{
	struct kvt_raw *keeper = scene->keeper;
	uint64_t block_bytes = kvt_block_bytes(keeper, "");
	struct kvw_completion open = kvt_open(keeper, 0, CHAIN, MATCHED, MATCHED);
	uint32_t i;

	for (i = 0; i < MATCHED; i++)
		kvt_write_block(keeper, block_bytes, kvt_answers(keeper, 0)[i].id, CHAIN, i);
	assert_int_equal(kvt_publish(keeper, 0, open.hold, 0, MATCHED, 0, 0).status, 0);
	kvt_release(keeper, open.hold);
}

static void open_scene(struct scene *scene)
{
	char blocks[64];
	const char *const options[] = {blocks, "--set=pool.p.block_tokens=16",
				       "--set=pool.p.planes=k f16 1x128", "--set=pool.p.pages=4k", NULL};

	snprintf(blocks, sizeof(blocks), "--set=pool.p.blocks=%u", scene->options.blocks + 64);
	scene->daemon = kvt_daemon_start(options);
	scene->admin = kvt_raw_hello(scene->daemon);
	scene->keeper = kvt_raw_engine(scene->daemon);
	publish_prefix(scene);
	scene->tenant_blocks = kvt_tenant_blocks(scene->admin, scene->keeper->session);
	scene->free_blocks = kvt_pool_state(scene->admin).free;
}

static void close_scene(struct scene *scene)
{
	kvt_raw_close(scene->keeper);
	kvt_raw_close(scene->admin);
	kvt_daemon_stop(scene->daemon);
}

static struct trial worst_of(const struct scene *scene)
{
	struct trial worst = {0};
	uint32_t i;

	for (i = 0; i < scene->options.trials; i++) {
		const struct trial *trial = &scene->trials[i];

		if (trial->death_ms > worst.death_ms)
			worst.death_ms = trial->death_ms;
		if (trial->books_ms > worst.books_ms)
			worst.books_ms = trial->books_ms;
		if (trial->free_ms > worst.free_ms)
			worst.free_ms = trial->free_ms;
	}
	return worst;
}

static void print_table(const struct scene *scene, const struct trial *worst)
{
	uint32_t i;

	printf("event loop %s, %u blocks leased and written; milliseconds\n", kvt_lane,
	       scene->options.blocks);
	printf("%8s %14s %16s %16s\n", "trial", "kill > pidfd", "pidfd > books", "pidfd > free");
	for (i = 0; i < scene->options.trials; i++)
		printf("%8u %14.2f %16.2f %16.2f\n", i + 1, scene->trials[i].death_ms,
		       scene->trials[i].books_ms, scene->trials[i].free_ms);
	printf("%8s %14.2f %16.2f %16.2f\n", "worst", worst->death_ms, worst->books_ms, worst->free_ms);
}

static void print_json(const struct scene *scene, const struct trial *worst)
{
	printf("{\"event_loop\": \"%s\", \"blocks\": %u, \"trials\": %u, \"worst_death_ms\": %.3f, "
	       "\"worst_books_ms\": %.3f, \"worst_free_ms\": %.3f, \"bound_ms\": %.0f}\n",
	       kvt_lane, scene->options.blocks, scene->options.trials, worst->death_ms, worst->books_ms,
	       worst->free_ms, BOUND_MS);
}

static void run_trials(void *arg)
{
	struct scene *scene = arg;
	uint32_t i;

	open_scene(scene);
	for (i = 0; i < scene->options.trials; i++)
		run_trial(scene, &scene->trials[i]);
	close_scene(scene);
}

int main(int argc, char **argv)
{
	static struct scene scene;
	struct trial worst;

	kvt_victim_main(argc, argv);
	scene.options = parse(argc, argv);
	kvt_take_lane(argc - optind + 1, argv + optind - 1, 60 + 10 * scene.options.trials);
	if (kvt_run_body(run_trials, &scene))
		return 1;
	worst = worst_of(&scene);
	if (scene.options.json)
		print_json(&scene, &worst);
	else
		print_table(&scene, &worst);
	return scene.options.judge && (worst.books_ms > BOUND_MS || worst.free_ms > BOUND_MS);
}
