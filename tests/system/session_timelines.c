/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a reader of coming blocks gets to wait by: the timelines of their writer, to read; and what these say when the writer is dead.
 */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "raw.h"
#include "session_groups.h"

#define TIMELINE 3u
/* Of the writer that is killed: more blocks than the daemon's loop gives up at a stretch. */
#define DEAD_CHAIN 777u
#define DEAD_BLOCKS 2000u

static int ask(struct kvt_raw *reader, uint64_t session)
{
	const struct kvw_msg_TIMELINES request = {.session = session};

	return kvt_raw_ask(reader, KVW_MSG_TIMELINES, &request);
}

/* The last answer's, mapped to read. */
static const struct kvw_timelines *map_lent(struct kvt_raw *reader)
{
	void *page = mmap(NULL, KVW_PAGE_BYTES, PROT_READ, MAP_SHARED, reader->lent_fd, 0);

	assert_true(page != MAP_FAILED);
	close(reader->lent_fd);
	return page;
}

static void unmap(const struct kvw_timelines *timelines)
{
	munmap((void *)(uintptr_t)timelines, KVW_PAGE_BYTES);
}

static struct kvw_completion open_coming(struct kvt_raw *reader, uint64_t chain, uint32_t blocks)
{
	kvt_set_hashes(reader, 0, chain, blocks);
	return kvt_raw_do(reader, (struct kvw_request){.type = KVW_REQUEST_OPEN,
						       .first = blocks,
						       .count = blocks,
						       .flags = KVW_REQUEST_COMING});
}

static void a_coming_block_names_its_writers_timeline(void **state)
{
	struct kvt_raw *writer = kvt_raw_engine(*state);
	struct kvt_raw *reader = kvt_raw_engine(*state);
	struct kvw_completion wrote = kvt_open(writer, 0, 771, 2, 2);
	const struct kvw_timelines *timelines;
	const struct kvw_answer *answer;

	kvt_publish(writer, 0, wrote.hold, 0, 1, 0, 0);
	kvt_publish(writer, 0, wrote.hold, 1, 1, TIMELINE, 9);
	kvt_step_done(writer, TIMELINE, 8);
	assert_int_equal(open_coming(reader, 771, 2).matched, 2);
	answer = kvt_answers(reader, 0);
	/* A complete one needs none. */
	assert_int_equal(answer[0].flags, KVW_ANSWER_MATCHED);
	assert_int_equal(answer[1].flags,
			 KVW_ANSWER_MATCHED | KVW_ANSWER_COMING | TIMELINE << KVW_ANSWER_TIMELINE_SHIFT);
	assert_int_equal(answer[1].step, 9);
	assert_int_equal(ask(reader, answer[1].writer), 0);
	assert_int_equal(reader->answer.TIMELINES_OK.session, writer->session);
	assert_int_equal(reader->answer.TIMELINES_OK.bytes, KVW_PAGE_BYTES);
	timelines = map_lent(reader);
	assert_int_equal(atomic_load(&timelines->line[TIMELINE].step), 8);
	kvt_step_done(writer, TIMELINE, 9);
	assert_int_equal(atomic_load(&timelines->line[TIMELINE].step), 9);
	while (kvt_pool_state(writer).pending)
		;
	unmap(timelines);
	kvt_raw_close(writer);
	kvt_raw_close(reader);
}

/* Guards O_RDONLY in send_timelines(), and the seal that MAPPED sets: a descriptor opened anew does not write either. */
static void lent_timelines_can_only_be_read(void **state)
{
	struct kvt_raw *writer = kvt_raw_engine(*state);
	struct kvt_raw *reader = kvt_raw_engine(*state);
	const uint64_t step = 99;
	char path[64];
	int again;

	assert_int_equal(ask(reader, writer->session), 0);
	assert_int_equal(fcntl(reader->lent_fd, F_GETFL) & O_ACCMODE, O_RDONLY);
	assert_true(mmap(NULL, KVW_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, reader->lent_fd, 0) ==
		    MAP_FAILED);
	assert_int_equal(pwrite(reader->lent_fd, &step, sizeof(step), 0), -1);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", reader->lent_fd);
	again = open(path, O_RDWR | O_CLOEXEC);
	/* Root, and who has the daemon's uid, comes so far. */
	if (again >= 0) {
		assert_true(mmap(NULL, KVW_PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) ==
			    MAP_FAILED);
		assert_int_equal(pwrite(again, &step, sizeof(step), 0), -1);
		assert_int_equal(
			fallocate(again, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, KVW_PAGE_BYTES), -1);
		close(again);
	}
	close(reader->lent_fd);
	kvt_raw_close(writer);
	kvt_raw_close(reader);
}

static struct kvt_raw *engine_of_namespace(struct kvt_daemon *daemon, const char *weights)
{
	const struct kvw_item_PAIR pair = {.key = kvw_text_of("weights"), .value = kvw_text_of(weights)};
	struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(daemon);

	attach.identity = kvw_list_of(&pair, 1);
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	kvt_raw_map(raw);
	return raw;
}

/* Guards may_see(): each of its conditions is the only one that one of these lacks. */
static void timelines_of_others_are_as_unknown_as_those_of_nobody(void **state)
{
	struct kvt_raw *stranger = engine_of_namespace(*state, "others");
	struct kvt_raw *reader = kvt_raw_engine(*state);
	struct kvt_raw *silent = kvt_raw_hello(*state);
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvw_completion wrote = kvt_open(stranger, 0, 772, 1, 1);

	kvt_publish(stranger, 0, wrote.hold, 0, 1, 0, 5);
	/* Not found, so that nobody would have to wait for it. */
	assert_int_equal(open_coming(reader, 772, 1).matched, 0);
	assert_int_equal(ask(reader, stranger->session), -ENOENT);
	assert_int_equal(ask(reader, UINT64_MAX), -ENOENT);
	assert_int_equal(ask(reader, 0), -ENOENT);
	assert_int_equal(ask(reader, silent->session), -ENOENT);
	assert_int_equal(kvt_raw_attach(silent, &attach), 0);
	assert_int_equal(ask(silent, reader->session), 0);
	close(silent->lent_fd);
	assert_int_equal(ask(reader, silent->session), -ENOENT);
	kvt_raw_map(silent);
	assert_int_equal(ask(reader, silent->session), 0);
	close(reader->lent_fd);
	kvt_step_done(stranger, 0, 5);
	kvt_raw_close(silent);
	kvt_raw_close(reader);
	kvt_raw_close(stranger);
}

static void only_an_engine_may_ask(void **state)
{
	struct kvt_raw *engine = kvt_raw_engine(*state);
	struct kvt_raw *raw = kvt_raw_hello(*state);

	assert_int_equal(ask(raw, engine->session), -KVP_ESTATE);
	kvt_raw_close(raw);
	kvt_raw_close(engine);
}

/* Guards is_unread(): who gave an answer up and asks again is no villain, but no second descriptor is under way meanwhile. */
static void asking_again_waits_until_the_first_answer_is_read(void **state)
{
	struct kvt_raw *writer = kvt_raw_engine(*state);
	struct kvt_raw *reader = kvt_raw_engine(*state);
	const struct kvw_msg_TIMELINES request = {.session = writer->session};
	uint8_t first[512];
	int unread;
	uint32_t i;

	for (i = 0; i < 3; i++)
		kvt_raw_send_message(reader, KVW_MSG_TIMELINES, &request);
	/* The daemon has come to them. */
	assert_int_equal(kvt_open(writer, 1, 773, 1, 0).status, 0);
	assert_return_code(ioctl(reader->fd, FIONREAD, &unread), errno);
	assert_int_equal(unread, recv(reader->fd, first, sizeof(first), MSG_PEEK));
	for (i = 0; i < 3; i++) {
		assert_int_equal(kvt_raw_receive(reader), KVW_MSG_TIMELINES_OK);
		close(reader->lent_fd);
	}
	kvt_raw_close(writer);
	kvt_raw_close(reader);
}

/* Rows as long as that. */
static struct kvt_raw *long_engine(struct kvt_daemon *daemon)
{
	struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(daemon);

	attach.row_blocks = DEAD_BLOCKS;
	attach.answers = KVT_LEASED + 8 * DEAD_BLOCKS;
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	kvt_raw_map(raw);
	return raw;
}

/* A process that is an engine, publishes what it does not complete, tells its session and waits. */
static _Noreturn void be_writer(struct kvt_daemon *daemon, int pipe_fd, int leash_fd)
{
	struct kvt_raw *raw = long_engine(daemon);
	struct kvw_completion open = kvt_open(raw, 0, DEAD_CHAIN, DEAD_BLOCKS, DEAD_BLOCKS);
	char byte;

	kvt_step_done(raw, TIMELINE, 7);
	if (kvt_publish(raw, 0, open.hold, 0, DEAD_BLOCKS, TIMELINE, 8).granted != DEAD_BLOCKS ||
	    write(pipe_fd, &raw->session, sizeof(raw->session)) != sizeof(raw->session))
		_exit(1);
	(void)!read(leash_fd, &byte, sizeof(byte));
	_exit(2);
}

static pid_t start_writer(struct kvt_daemon *daemon, uint64_t *out_session, int *out_leash)
{
	int ends[2];
	int leash[2];
	pid_t pid;

	assert_return_code(pipe(ends), errno);
	assert_return_code(pipe(leash), errno);
	pid = fork();
	if (!pid) {
		close(ends[0]);
		close(leash[1]);
		be_writer(daemon, ends[1], leash[0]);
	}
	close(ends[1]);
	close(leash[0]);
	assert_int_equal(read(ends[0], out_session, sizeof(*out_session)), sizeof(*out_session));
	close(ends[0]);
	*out_leash = leash[1];
	return pid;
}

/*
 * Guards kvd_attachment_poison() and its two conditions: the word is the poison and nothing beside it, so that every wait ends; and where it
 * is seen no block of the dead says PENDING any more.
 */
static void a_dead_writers_words_are_poisoned_after_its_blocks_are_lost(void **unused)
{
	const char *const options[] = {"--set=pool.p.blocks=2100", "--set=pool.p.block_tokens=16",
				       "--set=pool.p.planes=k f16 1x128", "--set=pool.p.pages=4k", NULL};
	struct kvt_daemon *daemon = kvt_daemon_start(options);
	struct kvt_raw *reader = long_engine(daemon);
	const struct kvw_directory_header *directory = reader->memory[KVT_DIRECTORY];
	const _Atomic uint64_t *words =
		(const _Atomic uint64_t *)((const uint8_t *)directory + directory->block_words);
	const struct kvw_timelines *timelines;
	uint64_t session;
	uint64_t step;
	int leash;
	uint32_t i;
	pid_t pid = start_writer(daemon, &session, &leash);
	struct kvw_completion read = open_coming(reader, DEAD_CHAIN, DEAD_BLOCKS);

	(void)unused;
	assert_int_equal(read.matched, DEAD_BLOCKS);
	assert_int_equal(ask(reader, session), 0);
	timelines = map_lent(reader);
	assert_int_equal(atomic_load(&timelines->line[TIMELINE].step), 7);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	close(leash);
	do
		step = atomic_load(&timelines->line[TIMELINE].step);
	while (step == 7);
	assert_true(step == KVW_TIMELINE_POISON);
	for (i = 0; i < DEAD_BLOCKS; i++)
		assert_int_equal(atomic_load(&words[kvt_answers(reader, 0)[i].id]) & 0xff, KVW_BLOCK_ORPHAN);
	for (i = 0; i < KVW_TIMELINES; i++)
		while (atomic_load(&timelines->line[i].step) != KVW_TIMELINE_POISON)
			;
	assert_int_equal(ask(reader, session), -ENOENT);
	unmap(timelines);
	kvt_release(reader, read.hold);
	kvt_raw_close(reader);
	kvt_daemon_stop(daemon);
}

/* As a device that ends a step of a process that is dead: the child has the page, and stores over the poison. */
static _Noreturn void be_dying_device(const struct kvt_raw *raw, int pipe_fd, int leash_fd)
{
	struct kvw_timelines *timelines = raw->memory[KVT_TIMELINES];
	char byte;

	while (atomic_load(&timelines->line[TIMELINE].step) != KVW_TIMELINE_POISON)
		sched_yield();
	atomic_store(&timelines->line[TIMELINE].step, 3);
	if (write(pipe_fd, "", 1) != 1)
		_exit(1);
	(void)!read(leash_fd, &byte, sizeof(byte));
	_exit(0);
}

/* Guards that kvd_attachment_poison() is called until the engine is gone: a reader that comes to its wait later would stand for ever. */
static void a_dying_devices_step_does_not_outlast_the_poison(void **state)
{
	struct kvt_raw *reader = kvt_raw_engine(*state);
	const struct kvw_timelines *timelines;
	uint64_t session;
	int ends[2];
	int leash[2];
	char byte;
	pid_t pid;

	assert_return_code(pipe(ends), errno);
	assert_return_code(pipe(leash), errno);
	pid = fork();
	if (!pid) {
		struct kvt_raw *raw = kvt_raw_engine(*state);

		close(leash[1]);
		if (!fork())
			be_dying_device(raw, ends[1], leash[0]);
		if (write(ends[1], &raw->session, sizeof(raw->session)) != sizeof(raw->session))
			_exit(1);
		pause();
	}
	close(leash[0]);
	assert_int_equal(read(ends[0], &session, sizeof(session)), sizeof(session));
	assert_int_equal(ask(reader, session), 0);
	timelines = map_lent(reader);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	/* It has stored: the poison that stands there now is a second one. */
	assert_int_equal(read(ends[0], &byte, 1), 1);
	while (atomic_load(&timelines->line[TIMELINE].step) != KVW_TIMELINE_POISON)
		;
	close(leash[1]);
	kvt_wait_gone(reader, session);
	unmap(timelines);
	close(ends[0]);
	close(ends[1]);
	kvt_raw_close(reader);
}

/* A writer that is only cut off may still complete what it has published: its words stay its own. */
static void a_living_writers_words_are_left_alone(void **state)
{
	struct kvt_raw *writer = kvt_raw_engine(*state);
	struct kvt_raw *reader = kvt_raw_engine(*state);
	struct kvw_completion wrote = kvt_open(writer, 0, 774, 2, 2);
	uint64_t cached = kvt_pool_state(reader).cached;
	const struct kvw_timelines *timelines;

	kvt_publish(writer, 0, wrote.hold, 0, 2, TIMELINE, 9);
	assert_int_equal(open_coming(reader, 774, 2).matched, 2);
	assert_int_equal(ask(reader, writer->session), 0);
	timelines = map_lent(reader);
	close(writer->fd);
	writer->fd = -1;
	kvt_wait_state(reader, writer->session, "to end, or to unmap");
	assert_int_equal(atomic_load(&timelines->line[TIMELINE].step), 0);
	kvt_step_done(writer, TIMELINE, 9);
	while (kvt_pool_state(reader).pending)
		;
	assert_int_equal(kvt_pool_state(reader).cached, cached + 2);
	kvt_raw_close(writer);
	while (atomic_load(&timelines->line[TIMELINE].step) != KVW_TIMELINE_POISON)
		;
	unmap(timelines);
	kvt_raw_close(reader);
}

int kvt_group_timelines(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_coming_block_names_its_writers_timeline),
		cmocka_unit_test(lent_timelines_can_only_be_read),
		cmocka_unit_test(timelines_of_others_are_as_unknown_as_those_of_nobody),
		cmocka_unit_test(only_an_engine_may_ask),
		cmocka_unit_test(asking_again_waits_until_the_first_answer_is_read),
		cmocka_unit_test(a_dead_writers_words_are_poisoned_after_its_blocks_are_lost),
		cmocka_unit_test(a_dying_devices_step_does_not_outlast_the_poison),
		cmocka_unit_test(a_living_writers_words_are_left_alone),
	};

	return cmocka_run_group_tests_name("timelines", tests, kvt_start_small, kvt_stop_small);
}
