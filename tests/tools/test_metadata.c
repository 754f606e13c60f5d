/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoolctl replay --metadata-only against a simulation of its rules that is written here, naively, and
 * knows nothing of the daemon: an array of resident blocks with the time each was last released. argv[1] is
 * kvpoolctl, argv[2] kvpoold. With the conversation trace in $KVPOOL_TRACES or in the folder argv[3], its
 * published counts too.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "program.h"
#include "support.h"

static const char *ctl;
static const char *traces;

struct resident {
	json_int_t id;
	uint64_t released; /* the clock when it last went to the young end */
	bool in_use;       /* by the request in flight */
};

struct simulation {
	struct resident *blocks;
	uint32_t count;
	uint32_t capacity;
	uint64_t clock;
	uint64_t lookups;
	uint64_t hits;
	uint64_t evictions;
};

static struct resident *find(struct simulation *sim, json_int_t id)
{
	for (uint32_t i = 0; i < sim->count; i++)
		if (sim->blocks[i].id == id)
			return &sim->blocks[i];
	return NULL;
}

/* A place for a new block: a free one, else the one that was released longest ago. */
static struct resident *place(struct simulation *sim)
{
	struct resident *oldest = NULL;

	if (sim->count < sim->capacity)
		return &sim->blocks[sim->count++];
	for (uint32_t i = 0; i < sim->count; i++)
		if (!sim->blocks[i].in_use && (!oldest || sim->blocks[i].released < oldest->released))
			oldest = &sim->blocks[i];
	assert_non_null(oldest);
	sim->evictions++;
	return oldest;
}

static void simulate(struct simulation *sim, const json_t *ids)
{
	size_t blocks = json_array_size(ids) < sim->capacity ? json_array_size(ids) : sim->capacity;
	size_t run = 0;
	struct resident *block;

	sim->lookups += blocks;
	for (; run < blocks; run++) {
		block = find(sim, json_integer_value(json_array_get(ids, run)));
		if (!block)
			break;
		block->in_use = true;
	}
	sim->hits += run;
	for (size_t i = run; i < blocks; i++) {
		json_int_t id = json_integer_value(json_array_get(ids, i));

		/* Resident behind a miss cannot be with chained ids and the last block released first. */
		assert_null(find(sim, id));
		block = place(sim);
		*block = (struct resident){.id = id, .in_use = true};
	}
	for (size_t i = blocks; i-- > 0;) {
		block = find(sim, json_integer_value(json_array_get(ids, i)));
		block->released = ++sim->clock;
		block->in_use = false;
	}
}

static struct simulation simulate_file(const char *path, uint32_t capacity)
{
	struct simulation sim = {.blocks = calloc(capacity, sizeof(struct resident)), .capacity = capacity};
	FILE *file = fopen(path, "re");
	char *line = NULL;
	size_t size = 0;

	assert_non_null(file);
	while (getline(&line, &size, file) > 0) {
		json_t *request = json_loads(line, 0, NULL);

		simulate(&sim, json_object_get(request, "hash_ids"));
		json_decref(request);
	}
	free(line);
	fclose(file);
	free(sim.blocks);
	return sim;
}

static json_t *replay(const char *path, uint32_t blocks, const char *block_tokens, const char *loop)
{
	char number[16];
	struct kvt_output output;
	json_t *root;

	snprintf(number, sizeof(number), "%u", blocks);
	output = kvt_run_words(ctl, "replay", "--standalone", "--metadata-only", "--json", "--blocks", number,
			       "--block-tokens", block_tokens, "--event-loop", loop, path, NULL);
	if (output.code)
		fail_msg("code %d:\n%s", output.code, output.err);
	root = kvt_output_json(&output);
	kvt_output_free(&output);
	return root;
}

static void assert_counts(const char *path, uint32_t blocks, const char *loop)
{
	struct simulation sim = simulate_file(path, blocks);
	json_t *root = replay(path, blocks, "16", loop);

	if (kvt_json_number(root, "hit_blocks") != (double)sim.hits ||
	    kvt_json_number(root, "lookup_blocks") != (double)sim.lookups ||
	    kvt_json_number(root, "evictions") != (double)sim.evictions)
		fail_msg("%u blocks, %s: %g hits of %g, %g evictions; the simulation has %lu of %lu, %lu",
			 blocks, loop, kvt_json_number(root, "hit_blocks"),
			 kvt_json_number(root, "lookup_blocks"), kvt_json_number(root, "evictions"),
			 (unsigned long)sim.hits, (unsigned long)sim.lookups, (unsigned long)sim.evictions);
	assert_true(kvt_json_number(root, "leased_at_end") == 0);
	assert_true(kvt_json_number(root, "draining_at_end") == 0);
	json_decref(root);
}

static void counts_are_those_of_a_simulation(void **state)
{
	static const uint32_t sizes[] = {1, 2, 3, 7, 20, 60, 150, 400, 3000};
	char *folder = kvt_mkdtemp();
	char path[200];
	char seed[32];
	struct kvt_output output;

	(void)state;
	snprintf(path, sizeof(path), "%s/trace", folder);
	snprintf(seed, sizeof(seed), "%lu", (unsigned long)kvt_seed());
	output = kvt_run_words(ctl, "trace", "generate", "--requests", "400", "--seed", seed,
			       "--trace-block-tokens", "128", "--output", path, NULL);
	assert_int_equal(output.code, 0);
	kvt_output_free(&output);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
		assert_counts(path, sizes[i], i % 2 ? "epoll" : "auto");
	kvt_rmdir(folder);
}

static const char *conversation(void)
{
	static char path[512];

	snprintf(path, sizeof(path), "%s/mooncake/conversation_trace.jsonl.gz", traces);
	return access(path, R_OK) ? NULL : path;
}

static void the_conversation_trace_gives_its_published_counts(void **state)
{
	static const struct {
		uint32_t blocks;
		double hits;
		double evictions;
	} published[] = {{10000, 61046, 217454}, {50000, 102290, 136210}};

	(void)state;
	if (!conversation()) {
		print_message("no trace in '%s'\n", traces);
		skip();
	}
	for (size_t i = 0; i < 2; i++) {
		json_t *root = replay(conversation(), published[i].blocks, "512", "auto");

		assert_true(kvt_json_number(root, "lookup_blocks") == 288500);
		assert_true(kvt_json_number(root, "hit_blocks") == published[i].hits);
		assert_true(kvt_json_number(root, "evictions") == published[i].evictions);
		json_decref(root);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest generated[] = {cmocka_unit_test(counts_are_those_of_a_simulation)};
	const struct CMUnitTest published[] = {
		cmocka_unit_test(the_conversation_trace_gives_its_published_counts)};

	if (argc < 5)
		return 2;
	kvt_watchdog(280);
	ctl = argv[1];
	setenv("KVPOOLD", argv[2], 1);
	traces = getenv("KVPOOL_TRACES") ? getenv("KVPOOL_TRACES") : argv[3];
	if (!strcmp(argv[4], "generated"))
		return cmocka_run_group_tests(generated, NULL, NULL);
	if (!conversation())
		return KVT_SKIP;
	return cmocka_run_group_tests(published, NULL, NULL);
}
