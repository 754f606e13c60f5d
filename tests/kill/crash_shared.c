/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a killed engine shared with others. The blocks of one that is dead but still mapped by its child are
 * the control of every "is free": there they must not be.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "content.h"
#include "crash_kill.h"
#include "victim.h"

#define CHAIN 7u
#define BLOCKS 8u
#define NEVER 1000u

static struct kvw_completion open_coming(struct kvt_raw *raw, uint32_t row, uint32_t count)
{
	struct kvw_completion done;

	kvt_set_hashes(raw, row, CHAIN, count);
	done = kvt_raw_do(raw, (struct kvw_request){.type = KVW_REQUEST_OPEN,
						    .row = row,
						    .first = count,
						    .count = count,
						    .flags = KVW_REQUEST_COMING});
	assert_int_equal(done.status, 0);
	kvt_accept(raw, row, 0, done.matched);
	return done;
}

/* State and generation as every client reads them in the directory. */
static uint64_t word_of(const struct kvt_raw *raw, int32_t id)
{
	const struct kvw_directory_header *directory = raw->memory[KVT_DIRECTORY];
	const _Atomic uint64_t *words =
		(const _Atomic uint64_t *)(const void *)((const uint8_t *)directory + directory->block_words);

	return atomic_load_explicit(&words[id], memory_order_acquire);
}

static bool is_among(int32_t id, const struct kvw_block_ref *refs, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count && refs[i].id != id; i++)
		;
	return i < count;
}

/* Takes every block that can be had, and gives them back: whether one of `refs` is among them. */
static bool is_granted(struct kvt_raw *raw, const struct kvw_block_ref *refs, uint32_t count)
{
	const struct kvw_answer *answers = kvt_leased(raw);
	struct kvw_block_ref *returns =
		(struct kvw_block_ref *)(void *)((uint8_t *)raw->memory[KVT_TABLES] + raw->layout.returns);
	struct kvw_completion done;
	bool found = false;
	uint32_t n = 0;
	uint32_t i;

	for (;;) {
		done = kvt_raw_do(raw,
				  (struct kvw_request){.type = KVW_REQUEST_LEASE, .first = n, .count = 1});
		if (done.status)
			break;
		found |= is_among(answers[n].id, refs, count);
		n++;
	}
	assert_int_equal(done.status, -KVP_ENOBLOCKS);
	for (i = 0; i < n; i++)
		returns[i] = (struct kvw_block_ref){.id = answers[i].id, .generation = answers[i].generation};
	kvt_raw_post(raw, &(struct kvw_request){.type = KVW_REQUEST_RETURN, .count = n});
	kvt_drain(raw);
	return found;
}

/* -------------------------------------------------------------- tests */

void published_and_finished_stays_findable(void **state)
{
	const struct kvt_victim_order order = {
		.work = KVT_VICTIM_PUBLISH, .chain = CHAIN, .blocks = BLOCKS, .step = 0};
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *raw = kvt_raw_engine(*state);
	uint64_t block_bytes = kvt_block_bytes(raw, "");
	struct kvt_victim victim = kvt_victim_start(*state, &order);
	struct kvw_completion open;
	uint32_t i;

	kvt_victim_kill(&victim);
	kvt_wait_gone(admin, victim.told.session);
	open = kvt_open(raw, 0, CHAIN, BLOCKS, BLOCKS);
	assert_int_equal(open.matched, BLOCKS);
	for (i = 0; i < BLOCKS; i++) {
		assert_int_equal(kvt_answers(raw, 0)[i].id, victim.told.blocks[i].id);
		assert_int_equal(kvt_answers(raw, 0)[i].writer, victim.told.session);
		assert_true(kvt_holds_block(raw, block_bytes, kvt_answers(raw, 0)[i].id, CHAIN, i));
	}
	kvt_release(raw, open.hold);
	kvt_victim_forget(&victim);
	kvt_raw_close(raw);
	kvt_raw_close(admin);
	kvt_crash_leaves_nothing(*state);
}

void blocks_of_the_dead_wait_for_the_last_mapping(void **state)
{
	const struct kvt_victim_order order = {
		.work = KVT_VICTIM_LEASE, .child = KVT_CHILD_MAPS, .chain = CHAIN, .blocks = BLOCKS};
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvt_victim victim = kvt_victim_start(*state, &order);
	struct kvt_pool_state pool;

	kvt_victim_kill(&victim);
	kvt_wait_state(admin, victim.told.session, "last mapping");
	pool = kvt_pool_state(admin);
	assert_int_equal(pool.quarantined, BLOCKS);
	assert_int_equal(pool.free, KVT_CRASH_BLOCKS - BLOCKS);
	assert_int_equal(kvt_client_state(admin, victim.told.session).waiting, BLOCKS);
	kvt_must_check(admin);
	assert_false(is_granted(raw, victim.told.blocks, BLOCKS));
	kvt_victim_forget(&victim);
	kvt_wait_gone(admin, victim.told.session);
	assert_true(is_granted(raw, victim.told.blocks, BLOCKS));
	kvt_raw_close(raw);
	kvt_raw_close(admin);
	kvt_crash_leaves_nothing(*state);
}

void a_kept_socket_keeps_nothing_else(void **state)
{
	const struct kvt_victim_order order = {
		.work = KVT_VICTIM_LEASE, .child = KVT_CHILD_KEEPS_SOCKET, .chain = CHAIN, .blocks = BLOCKS};
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_victim victim = kvt_victim_start(*state, &order);

	kvt_victim_kill(&victim);
	kvt_wait_gone(admin, victim.told.session);
	kvt_wait_free(admin, KVT_CRASH_BLOCKS);
	/* The child was there all the time. */
	assert_return_code(kill((pid_t)victim.told.child, 0), errno);
	kvt_victim_forget(&victim);
	kvt_raw_close(admin);
	kvt_crash_leaves_nothing(*state);
}

void a_stopped_client_loses_nothing(void **state)
{
	const struct kvt_victim_order order = {
		.work = KVT_VICTIM_LEASE, .chain = CHAIN, .published = 4, .blocks = BLOCKS};
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvt_victim victim = kvt_victim_start(*state, &order);
	int status = 0;

	kill(victim.pid, SIGSTOP);
	assert_int_equal(waitpid(victim.pid, &status, WUNTRACED), victim.pid);
	assert_true(WIFSTOPPED(status));
	assert_false(is_granted(raw, victim.told.blocks, BLOCKS));
	assert_int_equal(kvt_client_state(admin, victim.told.session).leased, BLOCKS);
	assert_int_equal(kvt_pool_state(admin).leased, BLOCKS);
	kvt_victim_kill(&victim);
	kvt_wait_gone(admin, victim.told.session);
	assert_int_equal(kvt_pool_state(admin).leased, 0);
	assert_true(is_granted(raw, victim.told.blocks, BLOCKS));
	kvt_victim_forget(&victim);
	kvt_raw_close(raw);
	kvt_raw_close(admin);
	kvt_crash_leaves_nothing(*state);
}

/* Published, step never reached: whoever matched it by COMING sees it lost, and nobody else ever sees it. */
void pending_of_the_dead_is_never_served(void **state)
{
	const struct kvt_victim_order order = {.work = KVT_VICTIM_PUBLISH,
					       .child = KVT_CHILD_MAPS,
					       .chain = CHAIN,
					       .blocks = BLOCKS,
					       .step = NEVER};
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvt_victim victim = kvt_victim_start(*state, &order);
	struct kvw_completion open = open_coming(raw, 0, BLOCKS);
	uint32_t i;

	assert_int_equal(open.matched, BLOCKS);
	assert_int_equal(kvt_answers(raw, 0)[0].flags, KVW_ANSWER_MATCHED | KVW_ANSWER_COMING);
	kvt_victim_kill(&victim);
	kvt_wait_state(admin, victim.told.session, "last mapping");
	assert_int_equal(kvt_pool_state(admin).orphan, BLOCKS);
	for (i = 0; i < BLOCKS; i++)
		assert_int_equal(word_of(raw, victim.told.blocks[i].id),
				 kvw_block_word(victim.told.blocks[i].generation, KVW_BLOCK_ORPHAN));
	assert_int_equal(open_coming(raw, 1, BLOCKS).matched, 0);
	assert_false(is_granted(raw, victim.told.blocks, BLOCKS));
	kvt_must_check(admin);
	/* Given up by its reader, still mapped by the dead one's child. */
	kvt_release(raw, open.hold);
	assert_int_equal(kvt_pool_state(admin).quarantined, BLOCKS);
	assert_false(is_granted(raw, victim.told.blocks, BLOCKS));
	kvt_victim_forget(&victim);
	kvt_wait_gone(admin, victim.told.session);
	assert_true(is_granted(raw, victim.told.blocks, BLOCKS));
	kvt_raw_close(raw);
	kvt_raw_close(admin);
	kvt_crash_leaves_nothing(*state);
}

/*
 * The same with nobody in between: also when the reader outlives the proof, the bytes stay its own until it
 * lets go.
 */
void pending_of_the_dead_goes_when_nobody_refers_to_it(void **state)
{
	const struct kvt_victim_order order = {
		.work = KVT_VICTIM_PUBLISH, .chain = CHAIN, .blocks = BLOCKS, .step = NEVER};
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvt_victim victim = kvt_victim_start(*state, &order);
	struct kvw_completion open = open_coming(raw, 0, BLOCKS / 2);

	assert_int_equal(open.matched, BLOCKS / 2);
	kvt_victim_kill(&victim);
	kvt_wait_gone(admin, victim.told.session);
	assert_int_equal(kvt_pool_state(admin).orphan, BLOCKS / 2);
	assert_int_equal(kvt_pool_state(admin).free, KVT_CRASH_BLOCKS - BLOCKS / 2);
	assert_false(is_granted(raw, victim.told.blocks, BLOCKS / 2));
	kvt_release(raw, open.hold);
	kvt_wait_free(admin, KVT_CRASH_BLOCKS);
	assert_true(is_granted(raw, victim.told.blocks, BLOCKS / 2));
	kvt_victim_forget(&victim);
	kvt_raw_close(raw);
	kvt_raw_close(admin);
	kvt_crash_leaves_nothing(*state);
}

void references_of_the_dead_are_dropped(void **state)
{
	const struct kvt_victim_order order = {.work = KVT_VICTIM_LEASE,
					       .child = KVT_CHILD_MAPS,
					       .chain = CHAIN,
					       .matched = BLOCKS,
					       .published = 4,
					       .blocks = 1};
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *raw = kvt_raw_engine(*state);
	uint64_t block_bytes = kvt_block_bytes(raw, "");
	struct kvw_completion open = kvt_open(raw, 0, CHAIN, BLOCKS, BLOCKS);
	struct kvt_victim victim;
	uint32_t i;

	for (i = 0; i < BLOCKS; i++)
		kvt_write_block(raw, block_bytes, kvt_answers(raw, 0)[i].id, CHAIN, i);
	assert_int_equal(kvt_publish(raw, 0, open.hold, 0, BLOCKS, 0, 0).status, 0);
	kvt_release(raw, open.hold);
	victim = kvt_victim_start(*state, &order);
	assert_int_equal(victim.told.matched, BLOCKS);
	assert_int_equal(kvt_pool_state(admin).referenced, BLOCKS + 4);
	kvt_victim_kill(&victim);
	kvt_wait_state(admin, victim.told.session, "last mapping");
	assert_int_equal(kvt_pool_state(admin).referenced, 0);
	assert_int_equal(kvt_pool_state(admin).evictable, BLOCKS + 4);
	kvt_victim_forget(&victim);
	kvt_raw_close(raw);
	kvt_raw_close(admin);
	kvt_crash_leaves_nothing(*state);
}
