/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The deep check finds every damage of a record and names its field: each byte of each field is
 * corrupted in turn.
 */
#include "check_scene.h"
#include "daemon/record.h"

struct field {
	const char *name;
	size_t offset;
	size_t bytes;
};

#define FIELD(field)                                                                                         \
	{                                                                                                    \
		"record." #field, offsetof(struct kvw_block_record, field),                                  \
			sizeof(((struct kvw_block_record *)NULL)->field)                                     \
	}

static const struct field fields[] = {
	FIELD(hash),    FIELD(generation), FIELD(parent_generation), FIELD(parent),    FIELD(namespace_id),
	FIELD(session), FIELD(step),       FIELD(last_use),          FIELD(state),     FIELD(tier),
	FIELD(group),   FIELD(hash_bytes), FIELD(timeline),          FIELD(plane_set), FIELD(flags),
	FIELD(commit),
};
#define FIELD_COUNT (sizeof(fields) / sizeof(fields[0]))

static void fields_are_the_whole_record(void **unused)
{
	size_t bytes = 0;
	size_t i;

	(void)unused;
	for (i = 0; i < FIELD_COUNT; i++)
		bytes += fields[i].bytes;
	assert_int_equal(bytes, sizeof(struct kvw_block_record));
}

static int32_t block_of(const struct scene *scene, uint32_t kind)
{
	const int32_t ids[] = {
		scene->a, scene->e, scene->g, scene->leased[0], scene->draining, 0, scene->engine->sink, 18};

	return kind < sizeof(ids) / sizeof(ids[0]) ? ids[kind] : -1;
}

/* Flips one bit of each byte of each field of one block of each kind. */
static void every_byte_of_every_record_field_is_named(void **unused)
{
	struct scene scene;
	uint32_t kind;
	size_t i, j;

	(void)unused;
	scene_create(&scene);
	for (kind = 0; block_of(&scene, kind) >= 0; kind++) {
		int32_t id = block_of(&scene, kind);

		for (i = 0; i < FIELD_COUNT; i++) {
			for (j = 0; j < fields[i].bytes; j++) {
				uint8_t *byte =
					(uint8_t *)&scene.books.pool->records[id] + fields[i].offset + j;

				*byte ^= (uint8_t)(1u << (j % 8));
				assert_named(&scene, id, fields[i].name);
				*byte ^= (uint8_t)(1u << (j % 8));
			}
		}
	}
	books_check(&scene.books);
	books_destroy(&scene.books);
}

/* Also where the commit was made to fit: only the copy can tell. */
static void field_with_a_fitting_commit_is_named(void **unused)
{
	struct scene scene;
	size_t i;

	(void)unused;
	scene_create(&scene);
	for (i = 0; i + 1 < FIELD_COUNT; i++) {
		struct kvw_block_record *record = &scene.books.pool->records[scene.e];
		struct kvw_block_record good = *record;

		((uint8_t *)record)[fields[i].offset] ^= 1;
		record->commit = kvd_record_seal(record, (uint32_t)scene.e, scene.books.pool->incarnation);
		assert_named(&scene, scene.e, fields[i].name);
		*record = good;
	}
	books_destroy(&scene.books);
}

/*
 * The same damage in the record and in the copy, commit and all: what is left are the rules of the
 * state.
 */
static void assert_rule(struct scene *scene, int32_t id, const struct kvw_block_record *bad, const char *what)
{
	struct kvd_pool *pool = scene->books.pool;
	struct kvw_block_record good = pool->block[id].record;
	struct kvw_block_record good_slot = pool->records[id];

	pool->block[id].record = *bad;
	kvd_record_write(&pool->records[id], bad, (uint32_t)id, pool->incarnation);
	assert_named(scene, id, what);
	pool->block[id].record = good;
	pool->records[id] = good_slot;
}

#define assert_rule_of(scene, id, field, value, what)                                                        \
	do {                                                                                                 \
		struct kvw_block_record bad_ = (scene)->books.pool->block[id].record;                        \
		bad_.field = value;                                                                          \
		assert_rule(scene, id, &bad_, what);                                                         \
	} while (0)

static void rules_of_the_states_are_held(void **unused)
{
	struct scene scene;
	struct scene *s = &scene;

	(void)unused;
	scene_create(s);
	assert_rule_of(s, s->leased[0], hash[3], 1, "hash");
	assert_rule_of(s, s->leased[0], hash_bytes, 8, "hash_bytes");
	assert_rule_of(s, s->leased[0], parent, 4, "parent");
	assert_rule_of(s, s->leased[0], parent_generation, 4, "parent_generation");
	assert_rule_of(s, s->leased[0], namespace_id, 4, "namespace_id");
	assert_rule_of(s, s->leased[0], plane_set, 4, "plane_set");
	assert_rule_of(s, s->leased[0], step, 4, "step");
	assert_rule_of(s, s->leased[0], timeline, 4, "timeline");
	assert_rule_of(s, s->leased[0], last_use, 4, "last_use");
	assert_rule_of(s, s->leased[0], tier, 1, "tier");
	assert_rule_of(s, s->leased[0], group, 1, "group");
	assert_rule_of(s, s->leased[0], flags, KVW_RECORD_SINK, "flags");
	assert_rule_of(s, s->leased[0], generation, 0, "generation");
	assert_rule_of(s, s->leased[0], session, 1, "session");
	assert_rule_of(s, s->leased[0], state, KVW_BLOCK_STATES, "state");
	assert_rule_of(s, s->leased[0], state, KVW_BLOCK_QUARANTINED, "state");
	assert_rule_of(s, s->leased[0], state, KVW_BLOCK_FROZEN, "state");
	assert_rule_of(s, s->a, hash_bytes, 0, "hash_bytes");
	assert_rule_of(s, s->a, hash_bytes, KVW_MAX_HASH_BYTES + 1, "hash_bytes");
	assert_rule_of(s, s->a, hash[40], 1, "hash");
	assert_rule_of(s, s->a, hash[0], (uint8_t)~bad_.hash[0], "key");
	assert_rule_of(s, s->a, namespace_id, 8, "key");
	assert_rule_of(s, s->a, plane_set, 0, "plane_set");
	assert_rule_of(s, s->a, last_use, UINT64_MAX, "last_use");
	assert_rule_of(s, s->a, generation, 9, "word in the directory");
	assert_rule_of(s, s->b, parent, 500, "parent");
	assert_rule_of(s, s->b, parent, s->leased[0], "parent");
	assert_rule_of(s, s->b, parent_generation, 9, "parent_generation");
	assert_rule_of(s, s->g, timeline, KVW_TIMELINES, "timeline");
	assert_rule_of(s, 18, session, 4, "session");
	assert_rule_of(s, 0, generation, 4, "generation");
	books_destroy(&s->books);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(fields_are_the_whole_record),
		cmocka_unit_test(every_byte_of_every_record_field_is_named),
		cmocka_unit_test(field_with_a_fitting_commit_is_named),
		cmocka_unit_test(rules_of_the_states_are_held),
	};

	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
