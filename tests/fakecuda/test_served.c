/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A served pool on a device, between processes: what one engine's stream has written another one reads, and
 * not before; and when the blocks of an engine that has ended may be somebody else's.
 */
#include "served.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *const shares[] = {"ipc", "fd"};

/* What a role tells of itself. */
struct told {
	uint64_t session;
	pid_t child;
	int32_t ids[4];
	uint32_t words[4];
	uint32_t matched;
};

static void tell(const struct told *told)
{
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, told, sizeof(*told), -1);
}

static void wait_for_word(void)
{
	char byte;

	kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &byte, 1, NULL);
}

/* The role "reader": matches chain 1, as long as it is told to look, and answers the first word of each block. */
static int reader_role(void)
{
	struct served_engine engine;

	fixture_setup(NULL);
	engine = served_attach(served_of_role());
	for (uint32_t row = 0; row < 2; row++) {
		struct told told = {.session = engine.raw->session};
		struct kvw_completion found;

		wait_for_word();
		found = kvt_open(engine.raw, row, 1, 4, 0);
		told.matched = found.matched;
		for (uint32_t i = 0; i < found.matched; i++)
			read_words(served_block(&engine, kvt_answers(engine.raw, row)[i].id), &told.words[i],
				   1);
		if (found.hold)
			kvt_release(engine.raw, found.hold);
		tell(&told);
	}
	served_detach(&engine);
	fixture_teardown(NULL);
	return 0;
}

static struct told ask_reader(int role_socket)
{
	struct told told;

	kvt_cuda_send(role_socket, "", 1, -1);
	kvt_cuda_receive(role_socket, &told, sizeof(told), NULL);
	return told;
}

static bool has_four_blocks(void *arg)
{
	return kvt_pool_state(arg).cached >= 4;
}

/*
 * Guards the load of the word in kvd_attachment_latch_one() (attachment.c), and the steps that kvd_engine_progress() waits
 * for: with either gone the first look finds the blocks, or the second doesn't.
 */
static void a_block_is_found_when_its_stream_has_written_it(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct kvt_daemon *daemon = served_start(shares[i], "0");
		struct served_engine writer = served_attach(daemon);
		struct kvw_completion open = kvt_open(writer.raw, 0, 1, 4, 4);
		struct told told;
		int role_socket;
		uint64_t gate;
		uint64_t *page = make_registered_page(&gate);
		pid_t pid = kvt_cuda_spawn("reader", NULL, &role_socket);

		assert_int_equal(open.granted, 4);
		OK(cuStreamWaitValue64, stream, gate, 1, KVW_CUDA_WAIT_GEQ);
		for (uint32_t b = 0; b < 4; b++)
			OK(cuMemsetD32Async, served_block(&writer, kvt_answers(writer.raw, 0)[b].id),
			   1000 + b, SERVED_BLOCK_WORDS, stream);
		OK(cuStreamWriteValue64, stream, served_word(&writer, 3), 1, KVW_CUDA_WRITE_DEFAULT);
		assert_int_equal(kvt_publish(writer.raw, 0, open.hold, 0, 4, 3, 1).granted, 4);
		assert_int_equal(ask_reader(role_socket).matched, 0);
		__atomic_store_n(page, 1, __ATOMIC_RELEASE);
		kvt_wait_until(has_four_blocks, writer.raw);
		told = ask_reader(role_socket);
		assert_int_equal(told.matched, 4);
		for (uint32_t b = 0; b < 4; b++)
			assert_int_equal(told.words[b], 1000 + b);
		assert_int_equal(kvt_cuda_reap(pid), 0);
		kvt_release(writer.raw, open.hold);
		close(role_socket);
		drop_registered_page(page);
		served_detach(&writer);
		served_stop(daemon);
	}
}

/*
 * The role "victim": blocks of chain 2 published and others leased, all of them about to be written by a
 * stream that never comes to it. With a child that has its descriptors if $FORKS is set.
 */
static int victim_role(void)
{
	struct told told = {.child = 0};
	struct served_engine engine;
	struct kvw_completion open;
	uint64_t gate;

	fixture_setup(NULL);
	make_registered_page(&gate);
	engine = served_attach(served_of_role());
	open = kvt_open(engine.raw, 0, 2, 4, 4);
	assert_int_equal(open.granted, 4);
	OK(cuStreamWaitValue64, stream, gate, 1, KVW_CUDA_WAIT_GEQ);
	for (uint32_t b = 0; b < 4; b++) {
		told.ids[b] = kvt_answers(engine.raw, 0)[b].id;
		OK(cuMemsetD32Async, served_block(&engine, told.ids[b]), 7, SERVED_BLOCK_WORDS, stream);
	}
	OK(cuStreamWriteValue64, stream, served_word(&engine, 0), 1, KVW_CUDA_WRITE_DEFAULT);
	assert_int_equal(kvt_publish(engine.raw, 0, open.hold, 0, 2, 0, 1).granted, 2);
	told.session = engine.raw->session;
	if (getenv("FORKS")) {
		told.child = fork();
		if (!told.child) {
			pause();
			_exit(0);
		}
	}
	tell(&told);
	pause();
	return 1;
}

static bool wrote(void *arg)
{
	return kvt_cuda_machine()->late_writes > *(uint64_t *)arg;
}

/* Takes every block that can be had, and whether one of them is the victim's. */
static bool takes_one_of(struct served_engine *engine, const struct told *victim, uint32_t *out_count)
{
	struct kvw_completion lease = kvt_raw_do(
		engine->raw, (struct kvw_request){.type = KVW_REQUEST_LEASE,
						  .count = (uint32_t)kvt_pool_state(engine->raw).free});
	bool found = false;

	assert_int_equal(lease.status, 0);
	for (uint32_t i = 0; i < lease.granted; i++)
		for (uint32_t b = 0; b < 4; b++)
			found |= kvt_leased(engine->raw)[i].id == victim->ids[b];
	*out_count = lease.granted;
	return found;
}

/*
 * Guards grace_has_passed() in kvd_device_proves_gone() (device_proof.c): without it the victim's blocks are free, and leased
 * here, while its device still writes them.
 */
static void a_killed_writers_blocks_are_nobodys_while_its_device_writes(void **state)
{
	static const char *const late[] = {"FAKECUDA_LATE_MS=600", NULL};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct kvt_daemon *daemon = served_start(shares[i], "1500");
		struct served_engine other = served_attach(daemon);
		uint64_t before = kvt_cuda_machine()->late_writes;
		struct told victim;
		uint32_t count;
		int role_socket;
		pid_t pid = kvt_cuda_spawn("victim", late, &role_socket);

		kvt_cuda_receive(role_socket, &victim, sizeof(victim), NULL);
		assert_int_equal(kill(pid, SIGKILL), 0);
		assert_int_equal(kvt_cuda_reap(pid), 128 + SIGKILL);
		kvt_wait_until(wrote, &before);
		kvt_wait_state(other.raw, victim.session, "device_grace_ms");
		assert_int_equal(kvt_pool_state(other.raw).quarantined, 4);
		assert_int_equal(kvt_pool_state(other.raw).cached, 0);
		assert_false(takes_one_of(&other, &victim, &count));
		assert_int_equal(count, SERVED_BLOCKS - 4);
		assert_int_equal(kvt_open(other.raw, 0, 2, 2, 0).matched, 0);
		kvt_wait_gone(other.raw, victim.session);
		assert_int_equal(kvt_cuda_machine()->late_writers, 0);
		assert_true(takes_one_of(&other, &victim, &count));
		assert_int_equal(count, 4);
		close(role_socket);
		served_detach(&other);
		served_stop(daemon);
	}
}

/*
 * Guards the lock byte's part of the proof: proved_gone() in device_cuda.c. A child of a killed engine has the
 * driver's descriptors too, which keep what was launched alive.
 */
static void a_child_with_the_descriptors_keeps_the_blocks(void **state)
{
	static const char *const forks[] = {"FORKS=1", NULL};
	struct kvt_daemon *daemon = served_start("fd", "0");
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	struct told victim;
	int role_socket;
	pid_t pid = kvt_cuda_spawn("victim", forks, &role_socket);

	(void)state;
	kvt_cuda_receive(role_socket, &victim, sizeof(victim), NULL);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(kvt_cuda_reap(pid), 128 + SIGKILL);
	kvt_wait_state(admin, victim.session, "children of process");
	assert_int_equal(kvt_pool_state(admin).quarantined, 4);
	assert_int_equal(kill(victim.child, SIGKILL), 0);
	kvt_wait_gone(admin, victim.session);
	close(role_socket);
	kvt_raw_close(admin);
	served_stop(daemon);
}

/*
 * Guards the look at the engine's state in kvd_device_proves_gone(), and look_for_word(): closed descriptors
 * prove nothing of a device while the process lives; its word does.
 */
static void an_engine_that_lives_must_say_that_it_is_done(void **state)
{
	struct kvt_daemon *daemon = served_start("ipc", "0");
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	struct served_engine engine = served_attach(daemon);
	uint64_t session = engine.raw->session;

	(void)state;
	assert_int_equal(kvt_open(engine.raw, 0, 3, 4, 4).granted, 4);
	close(engine.raw->fds[KVT_POOL]);
	engine.raw->fds[KVT_POOL] = -1;
	close(engine.raw->fd);
	engine.raw->fd = -1;
	kvt_wait_state(admin, session, "to end");
	/* Each answer is a turn or more; the proof would be asked for in each poll of 2 ms. */
	for (unsigned i = 0; i < 500; i++)
		assert_int_equal(kvt_pool_state(admin).frozen + kvt_pool_state(admin).leased, 4);
	served_unmap(&engine);
	served_say_drained(&engine);
	kvt_wait_gone(admin, session);
	kvt_raw_close(engine.raw);
	kvt_raw_close(admin);
	served_stop(daemon);
}

/*
 * Guards the latch in look_for_word(): a stream that ended between the end of file and the word has completed
 * its blocks.
 */
static void what_was_completed_before_the_word_is_kept(void **state)
{
	struct kvt_daemon *daemon = served_start("fd", "0");
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	struct served_engine engine = served_attach(daemon);
	uint64_t session = engine.raw->session;
	struct kvw_completion open = kvt_open(engine.raw, 0, 4, 4, 4);

	(void)state;
	assert_int_equal(kvt_publish(engine.raw, 0, open.hold, 0, 4, 0, 1).granted, 4);
	close(engine.raw->fd);
	engine.raw->fd = -1;
	kvt_wait_state(admin, session, "to end");
	OK(cuStreamWriteValue64, stream, served_word(&engine, 0), 1, KVW_CUDA_WRITE_DEFAULT);
	served_unmap(&engine);
	served_say_drained(&engine);
	close(engine.raw->fds[KVT_POOL]);
	engine.raw->fds[KVT_POOL] = -1;
	kvt_wait_gone(admin, session);
	assert_int_equal(kvt_pool_state(admin).cached, 4);
	kvt_raw_close(engine.raw);
	kvt_raw_close(admin);
	served_stop(daemon);
}

/*
 * Guards lock_byte_is_back(): the next engine with the byte of one whose child holds the descriptor could not be proved gone before that child
 * ends. The blocks are free at the word.
 */
static void a_child_with_the_descriptor_keeps_the_lock_byte(void **state)
{
	struct kvt_daemon *daemon = served_start("ipc", "0");
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	struct served_engine engine = served_attach(daemon);
	uint64_t session = engine.raw->session;
	uint64_t before = kvt_pool_state(admin).free;
	int of_child = dup(engine.raw->fds[KVT_POOL]);

	(void)state;
	assert_true(of_child >= 0);
	assert_int_equal(kvt_open(engine.raw, 0, 3, 4, 4).granted, 4);
	assert_in_range(kvt_pool_state(admin).free, 0, before - 4);
	served_detach(&engine);
	kvt_wait_state(admin, session, "children of process");
	assert_in_range(kvt_pool_state(admin).free, before, before + 1);
	/* Engines come and go, and the daemon has polled many times: it waits on. */
	for (int i = 0; i < 10; i++) {
		struct served_engine other = served_attach(daemon);

		served_detach(&other);
		kvt_wait_state(admin, session, "children of process");
	}
	close(of_child);
	kvt_wait_gone(admin, session);
	kvt_raw_close(admin);
	served_stop(daemon);
}

/* 200 MiB are 4 pieces; guards the second half of collect_fds(), and its bound of 64 a message. */
static void a_large_pool_comes_in_several_messages(void **state)
{
	static const char *const options[] = {"--set=pool.p.blocks=300000",
					      "--set=pool.p.block_tokens=16",
					      "--set=pool.p.planes=k f16 1x128, v f16 1x1664",
					      "--set=pool.p.devices=cuda:0",
					      "--set=pool.p.share=fd",
					      "--set=pool.p.device_grace_ms=0",
					      NULL};
	struct kvt_daemon *daemon = kvt_daemon_start(options);
	struct served_engine engine = served_attach(daemon);
	uint32_t word = 0;

	(void)state;
	assert_true(engine.raw->device.chunks > 2 * KVW_MAX_FDS_PER_MESSAGE);
	assert_true(engine.raw->device.chunks <= KVW_MAX_CHUNKS);
	fill_words(engine.pointer + engine.raw->device.bytes - 4, 9, 1);
	read_words(engine.pointer + engine.raw->device.bytes - 4, &word, 1);
	assert_int_equal(word, 9);
	served_detach(&engine);
	kvt_daemon_stop(daemon);
}

/* Guards `live` in kvd_device_proves_gone(): this process goes on, and would keep a place for each try. */
static void an_attach_that_was_not_finished_keeps_no_place(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		const struct kvw_msg_ATTACH attach = kvt_attach_message();
		struct kvt_daemon *daemon = served_start(shares[i], "60000");
		struct kvt_raw *admin = kvt_raw_hello(daemon);
		struct kvt_raw *raw = kvt_raw_hello(daemon);
		uint64_t session = raw->session;

		assert_int_equal(kvt_raw_attach(raw, &attach), 0);
		kvt_raw_close(raw);
		kvt_wait_gone(admin, session);
		kvt_raw_close(admin);
		served_stop(daemon);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_block_is_found_when_its_stream_has_written_it),
		cmocka_unit_test(a_killed_writers_blocks_are_nobodys_while_its_device_writes),
		cmocka_unit_test(a_child_with_the_descriptors_keeps_the_blocks),
		cmocka_unit_test(an_engine_that_lives_must_say_that_it_is_done),
		cmocka_unit_test(what_was_completed_before_the_word_is_kept),
		cmocka_unit_test(a_child_with_the_descriptor_keeps_the_lock_byte),
		cmocka_unit_test(an_attach_that_was_not_finished_keeps_no_place),
		cmocka_unit_test(a_large_pool_comes_in_several_messages),
	};

	(void)argc;
	setenv("FAKECUDA_MEMORY_MIB", "20480", 0);
	kvt_cuda_start(argv);
	kvt_watchdog(120);
	if (kvt_cuda_role())
		return strcmp(kvt_cuda_role(), "reader") ? victim_role() : reader_role();
	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
