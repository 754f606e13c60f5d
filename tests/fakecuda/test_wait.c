/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Readers whose streams wait for other engines' streams, in processes of their own, in each way of sharing: what they read is complete or their
 * step is refused, whatever becomes of the writer; and where a device can't wait they wait on the host.
 */
#include "share_engine.h"

#include "fixture.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/error.h>
#include <kvpool/kvpool.h>

#include "ipc/limits.h"

#define TOKENS (SHARE_MATCHED * SHARE_BLOCK_TOKENS)
#define FIRST 1000u
#define OLD 0x01d01d01u
#define NEW 0x0e30e30eu
/* Attributes of the reader's device: read-only registration, 64-bit stream words. */
#define CAN_WAIT "113=1"
#define CAN_NOT_SEE "113=0"
#define CAN_NOT_WAIT "113=1,122=0"

static const char *const ways[] = {"ipc", "fd"};

static struct kvt_daemon *start(const char *way)
{
	char share[64];
	const char *const options[] = {"--set=pool.p.blocks=12",
				       "--set=pool.p.block_tokens=16",
				       "--set=pool.p.planes=k bf16 1x64",
				       "--set=pool.p.devices=cuda:0",
				       "--set=pool.p.device_grace_ms=50",
				       share,
				       "--poll-ms=1",
				       NULL};

	snprintf(share, sizeof(share), "--set=pool.p.share=%s", way);
	return kvt_daemon_start(options);
}

static uint64_t ask(const struct share_engine *engine, struct share_order order)
{
	struct share_answer answer = share_ask(engine, order);

	if (answer.ret < 0)
		print_error("order %u: %s: %s\n", order.what, kvp_error_name(answer.ret), answer.text);
	assert_true(answer.ret >= 0);
	return answer.number;
}

#define ASK(engine, ...) ask(&(engine), (struct share_order){__VA_ARGS__})
#define ANSWER(engine, ...) share_ask(&(engine), (struct share_order){__VA_ARGS__})

static struct share_engine attached(const struct kvt_daemon *daemon, const char *attributes, uint32_t weights)
{
	struct share_engine engine;

	setenv("FAKECUDA_ATTRIBUTES", attributes, 1);
	engine = share_engine_start(daemon);
	setenv("FAKECUDA_ATTRIBUTES", CAN_WAIT, 1);
	ASK(engine, .what = SHARE_ATTACH, .value = weights);
	return engine;
}

/* Everything that reads: blocks with old bytes that are being written anew, and stay so until the writer's gate opens. */
struct scene {
	struct kvt_daemon *daemon;
	struct share_engine writer;
	struct share_engine reader;
};

static void raise_scene(struct scene *scene, const char *way, const char *attributes)
{
	scene->daemon = start(way);
	scene->writer = attached(scene->daemon, CAN_WAIT, 0);
	scene->reader = attached(scene->daemon, attributes, 0);
	ASK(scene->writer, .what = SHARE_OPEN, .number = TOKENS, .value = FIRST);
	ASK(scene->writer, .what = SHARE_GATE);
	ASK(scene->writer, .what = SHARE_WRITE, .value = NEW);
	ASK(scene->writer, .what = SHARE_SYNC); /* the daemon knows of the publish */
	assert_int_equal(ASK(scene->reader, .what = SHARE_OPEN, .number = TOKENS + 1, .value = FIRST,
			     .flags = KVP_OPEN_COMING),
			 TOKENS);
	assert_int_equal(ANSWER(scene->reader, .what = SHARE_READY).ret, 0);
}

static void strike_scene(struct scene *scene)
{
	share_engine_stop(&scene->reader);
	if (scene->writer.pid)
		share_engine_stop(&scene->writer);
	kvt_daemon_stop(scene->daemon);
}

static void kill_writer(struct scene *scene)
{
	kill(scene->writer.pid, SIGKILL);
	assert_int_equal(kvt_cuda_reap(scene->writer.pid), 128 + SIGKILL);
	close(scene->writer.socket_fd);
	scene->writer.pid = 0;
}

/* The double's can what it is told; many real ones can't. */
static void need_a_device_that_waits(void)
{
	int can = 0;

	fixture_setup(NULL);
	OK(cuDeviceGetAttribute, &can, KVW_CUDA_ATTR_READ_ONLY_REGISTER, 0);
	fixture_teardown(NULL);
	if (can)
		return;
	print_message(
		"this device can't register memory that may only be read: its engines wait on the host\n");
	skip();
}

static uint64_t count_calls(pid_t pid, const char *function)
{
	return kvt_cuda_is_double() ? kvt_cuda_calls(pid, function) : 0;
}

static uint64_t synchronisations(pid_t pid)
{
	return count_calls(pid, "cuStreamSynchronize") + count_calls(pid, "cuCtxSynchronize") +
	       count_calls(pid, "cuEventSynchronize");
}

/* The step is queued at once and stands: a stream that does not wait would come to its end in these many questions. */
static void read_and_stand(const struct scene *scene, bool as_batch)
{
	uint64_t before = synchronisations(scene->reader.pid);

	ASK(scene->reader, .what = SHARE_READ, .number = as_batch);
	for (int i = 0; i < 300; i++)
		assert_int_equal(ASK(scene->reader, .what = SHARE_DONE), 0);
	assert_int_equal(synchronisations(scene->reader.pid), before);
	assert_int_equal(ANSWER(scene->reader, .what = SHARE_READY).ret, 0);
}

/*
 * Guards the kvc_word_wait() in kvc_coming_queue() (coming_cuda.c): without it the reader's step is done, and has read other bytes, before the writer's stream has
 * written them. One wait for all three blocks: they are one step's.
 */
static void a_readers_stream_waits_for_the_writers_and_reads_the_final_bytes(void **state)
{
	(void)state;
	need_a_device_that_waits();
	for (uint32_t i = 0; i < 4; i++) {
		struct scene scene;
		uint64_t waits;

		raise_scene(&scene, ways[i / 2], CAN_WAIT);
		waits = count_calls(scene.reader.pid, "cuStreamWaitValue64");
		read_and_stand(&scene, i % 2);
		assert_int_equal(count_calls(scene.reader.pid, "cuStreamWaitValue64"),
				 waits + kvt_cuda_is_double());
		ASK(scene.writer, .what = SHARE_PASS);
		ASK(scene.reader, .what = SHARE_WAIT_DONE);
		ASK(scene.reader, .what = SHARE_SETTLE);
		assert_int_equal(ASK(scene.reader, .what = SHARE_COPIED, .value = NEW), 0);
		assert_int_equal(ANSWER(scene.reader, .what = SHARE_WAIT_READY).ret, 1);
		strike_scene(&scene);
	}
}

/*
 * Guards kvd_attachment_poison() (attachment.c): without it the reader's stream stands for ever. And kvc_coming_settle() in kvc_settle_check() (settle.c), the poison check:
 * without it the step's outcome stands, though its bytes are not the writer's. The control is the test before, which differs by the kill.
 */
static void a_killed_writer_ends_the_wait_and_the_step_is_refused(void **state)
{
	(void)state;
	need_a_device_that_waits();
	/* The device goes on writing into the dead writer's blocks for a while. */
	setenv("FAKECUDA_LATE_MS", "30", 1);
	for (uint32_t i = 0; i < 4; i++) {
		struct scene scene;

		raise_scene(&scene, ways[i / 2], CAN_WAIT);
		read_and_stand(&scene, i % 2);
		kill_writer(&scene);
		ASK(scene.reader, .what = SHARE_WAIT_DONE);
		assert_int_equal(ANSWER(scene.reader, .what = SHARE_SETTLE).ret, -KVP_ELOST);
		assert_int_equal(ANSWER(scene.reader, .what = SHARE_READY).ret, -KVP_ELOST);
		/* Nor does another step begin on it. */
		assert_int_equal(ANSWER(scene.reader, .what = SHARE_READ, .number = i % 2).ret, -KVP_ELOST);
		ASK(scene.reader, .what = SHARE_CLOSE);
		/* The block is nobody's to find; computed again it is the reader's own. */
		assert_int_equal(ASK(scene.reader, .what = SHARE_OPEN, .number = TOKENS, .value = FIRST,
				     .flags = KVP_OPEN_COMING),
				 0);
		ASK(scene.reader, .what = SHARE_WRITE, .value = OLD);
		assert_int_equal(ASK(scene.reader, .what = SHARE_COUNT_OTHER, .value = OLD), 0);
		strike_scene(&scene);
	}
	unsetenv("FAKECUDA_LATE_MS");
}

/* A writer that dies with its step done: its blocks are complete, and so is what was read. */
static void a_writer_killed_behind_its_step_spoils_nothing(void **state)
{
	(void)state;
	need_a_device_that_waits();
	for (uint32_t i = 0; i < 2; i++) {
		struct scene scene;

		raise_scene(&scene, ways[i], CAN_WAIT);
		read_and_stand(&scene, true);
		ASK(scene.writer, .what = SHARE_PASS);
		kill_writer(&scene);
		ASK(scene.reader, .what = SHARE_WAIT_DONE);
		ASK(scene.reader, .what = SHARE_SETTLE);
		assert_int_equal(ASK(scene.reader, .what = SHARE_COPIED, .value = NEW), 0);
		strike_scene(&scene);
	}
}

static void another_namespace_is_granted_nothing_that_is_coming(void **state)
{
	struct share_engine stranger;
	struct scene scene;

	(void)state;
	raise_scene(&scene, "fd", CAN_WAIT);
	stranger = attached(scene.daemon, CAN_WAIT, 7);
	assert_int_equal(ASK(stranger, .what = SHARE_OPEN, .number = TOKENS + 1, .value = FIRST,
			     .flags = KVP_OPEN_COMING),
			 0);
	ASK(scene.writer, .what = SHARE_PASS);
	assert_int_equal(ANSWER(scene.reader, .what = SHARE_WAIT_READY).ret, 1);
	ASK(stranger, .what = SHARE_CLOSE);
	assert_int_equal(ASK(stranger, .what = SHARE_OPEN, .number = TOKENS + 1, .value = FIRST), 0);
	share_engine_stop(&stranger);
	strike_scene(&scene);
}

/*
 * A device that can't register what may only be read, and one whose streams know no words: nothing is queued, the latch is waited for. Guards
 * ask_peers() (cuda.c) and the refusal without peers in find_waits() (coming_cuda.c).
 */
static void where_the_device_can_not_wait_the_host_does(void **state)
{
	static const char *const devices[] = {CAN_NOT_SEE, CAN_NOT_WAIT};

	(void)state;
	for (uint32_t i = 0; i < 8; i++) {
		struct scene scene;

		raise_scene(&scene, ways[i / 2 % 2], devices[i / 4]);
		assert_int_equal(ANSWER(scene.reader, .what = SHARE_READ, .number = i % 2).ret, -EAGAIN);
		assert_int_equal(ASK(scene.reader, .what = SHARE_DONE), 0);
		assert_int_equal(ANSWER(scene.reader, .what = SHARE_READ, .number = i % 2).ret, -EAGAIN);
		ASK(scene.writer, .what = SHARE_PASS);
		assert_int_equal(ANSWER(scene.reader, .what = SHARE_WAIT_READY).ret, 1);
		ASK(scene.reader, .what = SHARE_READ, .number = i % 2);
		ASK(scene.reader, .what = SHARE_WAIT_DONE);
		ASK(scene.reader, .what = SHARE_SETTLE);
		assert_int_equal(ASK(scene.reader, .what = SHARE_COPIED, .value = NEW), 0);
		strike_scene(&scene);
	}
}

static void a_lost_block_is_lost_where_the_host_waits_too(void **state)
{
	struct scene scene;

	(void)state;
	raise_scene(&scene, "ipc", CAN_NOT_WAIT);
	assert_int_equal(ANSWER(scene.reader, .what = SHARE_READ, .number = 1).ret, -EAGAIN);
	kill_writer(&scene);
	assert_int_equal(ANSWER(scene.reader, .what = SHARE_WAIT_READY).ret, -KVP_ELOST);
	assert_int_equal(ANSWER(scene.reader, .what = SHARE_READ, .number = 1).ret, -KVP_ELOST);
	assert_int_equal(ANSWER(scene.reader, .what = SHARE_SETTLE).ret, -KVP_ELOST);
	ASK(scene.reader, .what = SHARE_CLOSE);
	strike_scene(&scene);
}

/*
 * Guards ends_are_queued() (coming_cuda.c): two engines that publish, wait for each other's blocks and only then queue the ends of what they have published would stand
 * on the device for ever.
 */
static void who_owes_an_end_does_not_wait_for_others(void **state)
{
	struct scene scene;

	(void)state;
	raise_scene(&scene, "fd", CAN_WAIT);
	ASK(scene.reader, .what = SHARE_CLOSE);
	ASK(scene.reader, .what = SHARE_OPEN, .number = SHARE_BLOCK_TOKENS, .value = 9 * FIRST);
	ASK(scene.reader, .what = SHARE_WRITE, .value = OLD, .flags = SHARE_NO_END);
	ASK(scene.reader, .what = SHARE_CLOSE);
	ASK(scene.reader, .what = SHARE_OPEN, .number = TOKENS + 1, .value = FIRST, .flags = KVP_OPEN_COMING);
	assert_int_equal(ANSWER(scene.reader, .what = SHARE_READ, .number = 1).ret, -EAGAIN);
	ASK(scene.reader, .what = SHARE_END);
	read_and_stand(&scene, true);
	ASK(scene.writer, .what = SHARE_PASS);
	ASK(scene.reader, .what = SHARE_WAIT_DONE);
	ASK(scene.reader, .what = SHARE_SETTLE);
	assert_int_equal(ASK(scene.reader, .what = SHARE_COPIED, .value = NEW), 0);
	strike_scene(&scene);
}

/* Guards the relaxed mode in pin_page(): an open beside a capture of the application's neither fails to see the writer nor spoils the capture. */
static void an_open_during_a_capture_learns_its_writer(void **state)
{
	struct scene scene;

	(void)state;
	scene.daemon = start("ipc");
	scene.writer = attached(scene.daemon, CAN_WAIT, 0);
	scene.reader = attached(scene.daemon, CAN_WAIT, 0);
	ASK(scene.writer, .what = SHARE_OPEN, .number = TOKENS, .value = FIRST);
	ASK(scene.writer, .what = SHARE_GATE);
	ASK(scene.writer, .what = SHARE_WRITE, .value = NEW);
	ASK(scene.writer, .what = SHARE_SYNC);
	ASK(scene.reader, .what = SHARE_CAPTURE, .number = 1);
	assert_int_equal(ASK(scene.reader, .what = SHARE_OPEN, .number = TOKENS + 1, .value = FIRST,
			     .flags = KVP_OPEN_COMING),
			 TOKENS);
	ASK(scene.reader, .what = SHARE_CAPTURE);
	read_and_stand(&scene, false);
	ASK(scene.writer, .what = SHARE_PASS);
	ASK(scene.reader, .what = SHARE_WAIT_DONE);
	strike_scene(&scene);
}

/*
 * Guards find_place(): an engine whose writers come and go for weeks keeps the pages of some and lets go of those that nothing waits on; it neither
 * runs out of places nor gathers registrations.
 */
static void writers_come_and_go(void **state)
{
	const uint32_t kept = 32;
	struct scene scene;

	(void)state;
	raise_scene(&scene, "fd", CAN_WAIT);
	for (uint32_t i = 0; i <= kept + 1; i++) {
		ASK(scene.reader, .what = SHARE_READ, .number = 0);
		ASK(scene.writer, .what = SHARE_PASS);
		ASK(scene.reader, .what = SHARE_WAIT_DONE);
		ASK(scene.reader, .what = SHARE_SETTLE);
		ASK(scene.reader, .what = SHARE_CLOSE);
		share_engine_stop(&scene.writer);
		scene.writer = attached(scene.daemon, CAN_WAIT, 0);
		ASK(scene.writer, .what = SHARE_OPEN, .number = TOKENS, .value = FIRST + 100 * (i + 1));
		ASK(scene.writer, .what = SHARE_GATE);
		ASK(scene.writer, .what = SHARE_WRITE, .value = NEW);
		ASK(scene.writer, .what = SHARE_SYNC);
		assert_int_equal(ASK(scene.reader, .what = SHARE_OPEN, .number = TOKENS + 1,
				     .value = FIRST + 100 * (i + 1), .flags = KVP_OPEN_COMING),
				 TOKENS);
	}
	/* And its own timelines. */
	assert_int_equal(kvt_cuda_process(scene.reader.pid)->live[FAKE_KIND_REGISTRATION], kept + 1);
	ASK(scene.writer, .what = SHARE_PASS);
	strike_scene(&scene);
}

/* Each call of the driver that learning of a writer takes fails once: the open holds, nothing is left over, and the next one learns. */
static void no_failed_call_of_an_open_leaves_anything(void **state)
{
	struct scene scene;
	uint32_t n = 0;
	int64_t had;

	(void)state;
	raise_scene(&scene, "ipc", CAN_NOT_SEE);
	share_engine_stop(&scene.reader);
	scene.reader = attached(scene.daemon, CAN_WAIT, 0);
	had = kvt_cuda_live(scene.reader.pid, NULL, 0);
	while (kvt_cuda_live(scene.reader.pid, NULL, 0) == had) {
		kvt_cuda_fail_in(scene.reader.pid, NULL, ++n, KVW_CUDA_OUT_OF_MEMORY);
		assert_int_equal(ASK(scene.reader, .what = SHARE_OPEN, .number = TOKENS + 1, .value = FIRST,
				     .flags = KVP_OPEN_COMING),
				 TOKENS);
		kvt_cuda_fail_in(scene.reader.pid, NULL, 0, 0);
		ASK(scene.reader, .what = SHARE_CLOSE);
	}
	assert_true(n > 3);
	assert_int_equal(kvt_cuda_live(scene.reader.pid, NULL, 0), had + 1);
	ASK(scene.writer, .what = SHARE_PASS);
	/* Its context, its stream. */
	assert_int_equal(ASK(scene.reader, .what = SHARE_LEAVE), 2);
	strike_scene(&scene);
}

static bool goes_on(uint64_t word_value, uint64_t step)
{
	struct kvw_cuda_stream *waiting;
	uint64_t word;
	_Atomic uint64_t *page = make_registered_page(&word);
	bool done;

	atomic_store(page, word_value);
	OK(cuStreamCreate, &waiting, KVW_CUDA_STREAM_NON_BLOCKING);
	OK(cuStreamWaitValue64, waiting, word, step, KVW_CUDA_WAIT_GEQ);
	for (int i = 0; i < 100 && cuda->cuStreamQuery(waiting); i++)
		fill_words(word + 8, (uint32_t)i, 1);
	done = cuda->cuStreamQuery(waiting) == 0;
	atomic_store(page, step);
	OK(cuStreamSynchronize, waiting);
	OK(cuStreamDestroy, waiting);
	drop_registered_page((void *)(uintptr_t)page);
	return done;
}

/* Why a dead writer's word is the poison alone: with a step below it, waits for earlier ones stand for ever. */
static void only_the_plain_poison_ends_every_wait(void **state)
{
	(void)state;
	fixture_setup(NULL);
	assert_true(goes_on(KVW_TIMELINE_POISON, 1));
	assert_true(goes_on(KVW_TIMELINE_POISON, 8));
	assert_true(goes_on(KVW_TIMELINE_POISON, KVW_TIMELINE_POISON - 1));
	assert_true(goes_on(KVW_TIMELINE_POISON | 7, 8));
	assert_false(goes_on(KVW_TIMELINE_POISON | 7, 6));
	assert_false(goes_on(7, 8));
	fixture_teardown(NULL);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_readers_stream_waits_for_the_writers_and_reads_the_final_bytes),
		cmocka_unit_test(a_killed_writer_ends_the_wait_and_the_step_is_refused),
		cmocka_unit_test(a_writer_killed_behind_its_step_spoils_nothing),
		cmocka_unit_test(another_namespace_is_granted_nothing_that_is_coming),
		cmocka_unit_test(where_the_device_can_not_wait_the_host_does),
		cmocka_unit_test(a_lost_block_is_lost_where_the_host_waits_too),
		cmocka_unit_test(who_owes_an_end_does_not_wait_for_others),
		cmocka_unit_test(an_open_during_a_capture_learns_its_writer),
		cmocka_unit_test(writers_come_and_go),
		cmocka_unit_test(no_failed_call_of_an_open_leaves_anything),
		cmocka_unit_test(only_the_plain_poison_ends_every_wait),
	};

	(void)argc;
	setenv("FAKECUDA_KERNELS", SIMT_KERNELS, 0);
	setenv("FAKECUDA_DELAY_US", "50", 0);
	setenv("FAKECUDA_ATTRIBUTES", CAN_WAIT, 0);
	kvt_cuda_start(argv);
	if (kvt_cuda_role())
		return share_engine_main();
	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
