/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How sessions end, and what their blocks wait for: death, end of file with a process that lives on, a child
 * that keeps everything open.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "raw.h"
#include "session_groups.h"

#define LOCKS 30000
#define FIRST_LOCK 2000000

/* A process that is an engine with blocks, tells its session, and then waits to be killed. */
struct victim {
	pid_t pid;
	uint64_t session;
	uint64_t chain; /* of its blocks */
	int leash_fd;
	pid_t child; /* of victims that forked: keeps all descriptors and mappings */
};

/* Until it is killed, or the test is no more: then the pipe has no other end. */
static _Noreturn void wait_for_death(int leash_fd)
{
	char byte;

	(void)!read(leash_fd, &byte, sizeof(byte));
	_exit(2);
}

static _Noreturn void be_victim(struct kvt_daemon *daemon, int pipe_fd, int leash_fd, bool fork_child)
{
	struct victim victim = {.pid = getpid(), .chain = (uint64_t)getpid() << 20};
	struct kvt_raw *raw = kvt_raw_engine(daemon);
	struct kvw_completion open = kvt_open(raw, 0, victim.chain, 8, 8);

	/* 4 published, 2 pending for ever, 2 leased. */
	if (open.granted != 8 || kvt_publish(raw, 0, open.hold, 0, 4, 0, 0).granted != 4 ||
	    kvt_publish(raw, 0, open.hold, 4, 2, 0, 1000).granted != 2)
		_exit(1);
	victim.session = raw->session;
	if (fork_child) {
		victim.child = fork();
		if (!victim.child)
			wait_for_death(leash_fd);
	}
	if (write(pipe_fd, &victim, sizeof(victim)) != sizeof(victim))
		_exit(1);
	wait_for_death(leash_fd);
}

static struct victim start_victim(struct kvt_daemon *daemon, bool fork_child)
{
	struct victim victim = {0};
	int leash[2];
	int ends[2];
	pid_t pid;

	assert_return_code(pipe(ends), errno);
	assert_return_code(pipe(leash), errno);
	pid = fork();
	if (!pid) {
		close(ends[0]);
		close(leash[1]);
		be_victim(daemon, ends[1], leash[0], fork_child);
	}
	close(ends[1]);
	close(leash[0]);
	assert_int_equal(read(ends[0], &victim, sizeof(victim)), sizeof(victim));
	close(ends[0]);
	victim.leash_fd = leash[1];
	return victim;
}

static void kill_victim(const struct victim *victim)
{
	kill(victim->pid, SIGKILL);
	assert_int_equal(waitpid(victim->pid, NULL, 0), victim->pid);
	if (!victim->child)
		close(victim->leash_fd);
}

/* The flush takes what is cached; the rest must have come back by itself. */
static void flush_to_empty(struct kvt_raw *admin)
{
	const struct kvw_msg_FLUSH flush = {.unused = 0};

	assert_int_equal(kvt_raw_ask(admin, KVW_MSG_FLUSH, &flush), 0);
	assert_int_equal(admin->answer.FLUSH_OK.still_referenced, 0);
	kvt_wait_free(admin, 64);
	kvt_must_check(admin);
}

static uint64_t ended_or_died(const struct kvt_pool_state *pool)
{
	return pool->counters[KVW_COUNTER_sessions_ended] + pool->counters[KVW_COUNTER_sessions_died];
}

static void killed_engine_gives_its_blocks_back(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct victim victim = start_victim(*state, false);
	struct kvt_pool_state before = kvt_pool_state(admin);
	struct kvt_pool_state after;

	assert_int_equal(before.leased, 2);
	assert_int_equal(before.pending, 2);
	kill_victim(&victim);
	kvt_wait_gone(admin, victim.session);
	after = kvt_pool_state(admin);
	assert_int_equal(after.leased + after.pending + after.frozen + after.quarantined, 0);
	assert_int_equal(after.cached, 4);
	/* Its end of file may come, and be the proof, before its pidfd is ready: then it counts as an end. */
	assert_int_equal(ended_or_died(&after), ended_or_died(&before) + 1);
	flush_to_empty(admin);
	kvt_raw_close(admin);
}

/*
 * What is known at once is done at once; what a child can still touch waits for it, and the daemon says so.
 */
static void child_that_keeps_the_mapping_is_waited_for(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct victim victim = start_victim(*state, true);
	struct kvt_pool_state pool;

	kill_victim(&victim);
	kvt_wait_state(admin, victim.session, "mapping of pool 'p'");
	while (kvt_pool_state(admin).quarantined != 4)
		;
	pool = kvt_pool_state(admin);
	assert_int_equal(pool.referenced, 0);
	assert_int_equal(pool.cached, 4);
	assert_int_equal(kvt_client_state(admin, victim.session).waiting, 4);
	kvt_must_check(admin);
	kill(victim.child, SIGKILL);
	close(victim.leash_fd);
	kvt_wait_gone(admin, victim.session);
	flush_to_empty(admin);
	kvt_raw_close(admin);
}

static void end_of_file_freezes_what_a_living_process_maps(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *raw = kvt_raw_engine(*state);
	struct kvw_completion open = kvt_open(raw, 0, 301, 4, 6);

	assert_int_equal(kvt_publish(raw, 0, open.hold, 0, 2, 0, 0).granted, 2);
	assert_int_equal(kvt_publish(raw, 0, open.hold, 2, 2, 0, 5).granted, 2);
	close(raw->fd);
	raw->fd = -1;
	kvt_wait_state(admin, raw->session, "to end, or to unmap");
	while (kvt_pool_state(admin).frozen != 2)
		;
	assert_int_equal(kvt_pool_state(admin).pending, 2);
	assert_int_equal(kvt_pool_state(admin).referenced, 2);
	kvt_must_check(admin);
	/* Its process still computes: what it completes is everybody's. */
	kvt_step_done(raw, 0, 5);
	while (kvt_pool_state(admin).pending)
		;
	assert_int_equal(kvt_client_state(admin, raw->session).waiting, 2);
	kvt_raw_unmap_pool(raw);
	kvt_wait_gone(admin, raw->session);
	flush_to_empty(admin);
	kvt_raw_close(raw);
	kvt_raw_close(admin);
}

static void descriptor_alone_keeps_blocks_frozen(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *raw = kvt_raw_engine(*state);
	int copy = dup(raw->fds[KVT_POOL]);
	uint64_t session = raw->session;

	assert_int_equal(kvt_open(raw, 0, 0, 0, 3).granted, 3);
	kvt_raw_close(raw);
	kvt_wait_state(admin, session, "to end, or to unmap");
	while (kvt_pool_state(admin).frozen != 3)
		;
	close(copy);
	kvt_wait_gone(admin, session);
	kvt_wait_free(admin, 64);
	kvt_raw_close(admin);
}

static void clean_close_leaves_nothing_to_wait_for(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *raw = kvt_raw_engine(*state);
	uint64_t ended = kvt_pool_state(admin).counters[KVW_COUNTER_sessions_ended];
	uint64_t session = raw->session;

	assert_int_equal(kvt_open(raw, 0, 0, 0, 3).granted, 3);
	kvt_raw_close(raw);
	kvt_wait_gone(admin, session);
	assert_int_equal(kvt_pool_state(admin).free, 64);
	assert_int_equal(kvt_pool_state(admin).counters[KVW_COUNTER_sessions_ended], ended + 1);
	kvt_raw_close(admin);
}

static void reader_of_a_dead_writers_coming_block_sees_it_lost(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *reader = kvt_raw_engine(*state);
	struct victim victim = start_victim(*state, false);
	const struct kvw_directory_header *directory = reader->memory[KVT_DIRECTORY];
	const _Atomic uint64_t *words =
		(const _Atomic uint64_t *)((const uint8_t *)directory + directory->block_words);
	struct kvw_completion read;
	int32_t lost;

	kvt_set_hashes(reader, 0, victim.chain, 6);
	read = kvt_raw_do(reader, (struct kvw_request){.type = KVW_REQUEST_OPEN,
						       .first = 6,
						       .count = 6,
						       .flags = KVW_REQUEST_COMING});
	assert_int_equal(read.matched, 6);
	lost = kvt_answers(reader, 0)[5].id;
	kill_victim(&victim);
	while ((atomic_load(&words[lost]) & 0xff) == KVW_BLOCK_PENDING)
		;
	assert_int_equal(atomic_load(&words[lost]) & 0xff, KVW_BLOCK_ORPHAN);
	kvt_wait_gone(admin, victim.session);
	kvt_must_check(admin);
	assert_int_equal(kvt_pool_state(admin).orphan, 2);
	kvt_release(reader, read.hold);
	while (kvt_pool_state(admin).orphan)
		;
	kvt_raw_close(reader);
	flush_to_empty(admin);
	kvt_raw_close(admin);
}

static void session_that_never_pulled_its_descriptors_is_gone_at_once(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct kvt_raw *raw = kvt_raw_hello(*state);
	const struct kvw_msg_ATTACH attach = kvt_attach_message();

	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	close(raw->fd);
	raw->fd = -1;
	kvt_wait_gone(admin, raw->session);
	kvt_raw_close(raw);
	kvt_raw_close(admin);
}

/*
 * The kernel walks a file's locks at each question after one: with so many the daemon asks seldom. One lock is
 * cut into many from behind, since it is found first each time.
 */
static void make_proofs_dear(const struct kvt_raw *raw)
{
	struct flock lock = {
		.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = FIRST_LOCK, .l_len = 2 * LOCKS};
	int i;

	assert_return_code(fcntl(raw->fds[KVT_POOL], F_OFD_SETLK, &lock), errno);
	lock.l_type = F_UNLCK;
	lock.l_len = 1;
	for (i = LOCKS - 1; i >= 0; i--) {
		lock.l_start = FIRST_LOCK + 2 * i + 1;
		assert_return_code(fcntl(raw->fds[KVT_POOL], F_OFD_SETLK, &lock), errno);
	}
}

static void wait_polls(const struct kvt_raw *raw, uint64_t count)
{
	const struct kvw_directory_header *directory = raw->memory[KVT_DIRECTORY];
	uint64_t until = atomic_load(&directory->heartbeat) + count;

	while (atomic_load(&directory->heartbeat) < until)
		sched_yield();
}

/* The questions about `early` are asked first, so that its end says that the victim's was not come to yet. */
static void death_is_known_before_a_late_proof(void **state)
{
	struct kvt_raw *admin = kvt_raw_hello(*state);
	struct victim victim = start_victim(*state, false);
	struct kvt_raw *foe = kvt_raw_engine(*state);
	struct kvt_raw *early = kvt_raw_engine(*state);
	struct kvt_client_state dead;

	assert_int_equal(kvt_open(early, 0, 0, 0, 3).granted, 3);
	make_proofs_dear(foe);
	close(early->fd);
	early->fd = -1;
	kvt_wait_state(admin, early->session, "to end, or to unmap");
	wait_polls(foe, 3);
	kvt_raw_unmap_pool(early);
	kill_victim(&victim);
	kvt_wait_gone(admin, early->session);
	/* The victim's pidfd is looked at in every turn; questions are paused for much longer. */
	wait_polls(foe, 2);
	dead = kvt_client_state(admin, victim.session);
	assert_null(strstr(dead.waits_for, "to end"));
	assert_int_equal(dead.references, 0);
	kvt_raw_close(early);
	kvt_raw_close(foe);
	kvt_wait_gone(admin, victim.session);
	flush_to_empty(admin);
	kvt_raw_close(admin);
}

static void many_deaths_leave_the_daemon_as_it_was(void **state)
{
	struct kvt_daemon *daemon = *state;
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	int i;

	for (i = 0; i < 20; i++) {
		struct victim victim = start_victim(daemon, false);

		kill_victim(&victim);
		kvt_wait_gone(admin, victim.session);
	}
	flush_to_empty(admin);
	kvt_raw_close(admin);
}

int kvt_group_end(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(killed_engine_gives_its_blocks_back),
		cmocka_unit_test(child_that_keeps_the_mapping_is_waited_for),
		cmocka_unit_test(end_of_file_freezes_what_a_living_process_maps),
		cmocka_unit_test(descriptor_alone_keeps_blocks_frozen),
		cmocka_unit_test(clean_close_leaves_nothing_to_wait_for),
		cmocka_unit_test(reader_of_a_dead_writers_coming_block_sees_it_lost),
		cmocka_unit_test(session_that_never_pulled_its_descriptors_is_gone_at_once),
		cmocka_unit_test(death_is_known_before_a_late_proof),
		cmocka_unit_test(many_deaths_leave_the_daemon_as_it_was),
	};

	return cmocka_run_group_tests_name("end", tests, kvt_start_small, kvt_stop_small);
}
