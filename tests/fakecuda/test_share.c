/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Engine processes and kvpoold on the double, in each way of sharing: what one writes the others read, not before it is there, and not after it
 * was given up.
 */
#include "share_engine.h"

#include "control.h"
#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/error.h>
#include <kvpool/kvpool.h>

#define BLOCKS 12
#define BLOCK_TOKENS SHARE_BLOCK_TOKENS

static const char *const ways[] = {"ipc", "fd"};

static struct kvt_daemon *start_with(const char *way, const char *option)
{
	char share[64];
	const char *const options[] = {"--set=pool.p.blocks=12",
				       "--set=pool.p.block_tokens=16",
				       "--set=pool.p.planes=k bf16 1x64",
				       "--set=pool.p.devices=cuda:0",
				       "--set=pool.p.device_grace_ms=50",
				       share,
				       "--poll-ms=1",
				       option,
				       NULL};

	snprintf(share, sizeof(share), "--set=pool.p.share=%s", way);
	return kvt_daemon_start(options);
}

static struct kvt_daemon *start(const char *way)
{
	return start_with(way, NULL);
}

static uint64_t ask(const struct share_engine *engine, struct share_order order)
{
	struct share_answer answer = share_ask(engine, order);

	if (answer.ret < 0)
		print_error("order %u: %s: %s\n", order.what, kvp_error_name(answer.ret), answer.text);
	assert_true(answer.ret >= 0);
	return answer.number;
}

static struct share_engine attached(const struct kvt_daemon *daemon)
{
	struct share_engine engine = share_engine_start(daemon);

	ask(&engine, (struct share_order){.what = SHARE_ATTACH});
	return engine;
}

#define ASK(engine, ...) ask(&(engine), (struct share_order){__VA_ARGS__})
#define ANSWER(engine, ...) share_ask(&(engine), (struct share_order){__VA_ARGS__})

/*
 * Guards kvc_word_store() (words_cuda.c) on the stream in kvp_step_done_on(): a store by the host at the call would make the block findable before its bytes
 * are there. And pool_memory() in kvp_plane_view(): both sides have the same bytes at addresses of their own.
 */
static void what_one_engine_writes_another_reads_when_its_stream_has_run(void **state)
{
	(void)state;
	for (uint32_t way = 0; way < 2; way++) {
		struct kvt_daemon *daemon = start(ways[way]);
		struct share_engine writer = attached(daemon);
		struct share_engine reader = attached(daemon);
		struct share_engine other = attached(daemon);

		assert_int_equal(ASK(writer, .what = SHARE_OPEN, .number = 3 * BLOCK_TOKENS, .value = 1000),
				 0);
		ASK(writer, .what = SHARE_GATE);
		ASK(writer, .what = SHARE_WRITE, .value = 0xabcd0000 + way);
		ASK(writer, .what = SHARE_SYNC); /* the daemon knows of the publish */
		/* Nobody finds it as complete; who asks for what is coming waits. */
		assert_int_equal(ASK(reader, .what = SHARE_OPEN, .number = 3 * BLOCK_TOKENS, .value = 1000),
				 0);
		ASK(reader, .what = SHARE_CLOSE);
		assert_int_equal(ASK(other, .what = SHARE_OPEN, .number = 3 * BLOCK_TOKENS, .value = 1000,
				     .flags = KVP_OPEN_COMING),
				 3 * BLOCK_TOKENS);
		assert_int_equal(ANSWER(other, .what = SHARE_READY).ret, 0);
		ASK(writer, .what = SHARE_PASS);
		assert_int_equal(ANSWER(other, .what = SHARE_WAIT_READY).ret, 1);
		assert_int_equal(ASK(reader, .what = SHARE_OPEN, .number = 3 * BLOCK_TOKENS, .value = 1000),
				 3 * BLOCK_TOKENS);
		assert_int_equal(ASK(reader, .what = SHARE_COUNT_OTHER, .value = 0xabcd0000 + way), 0);
		assert_int_equal(ASK(other, .what = SHARE_COUNT_OTHER, .value = 0xabcd0000 + way), 0);
		share_engine_stop(&other);
		share_engine_stop(&reader);
		share_engine_stop(&writer);
		kvt_daemon_stop(daemon);
	}
}

static bool finds_seven_blocks(void *arg)
{
	struct share_engine *engine = arg;

	if (ASK(*engine, .what = SHARE_OPEN, .number = 7 * BLOCK_TOKENS + 1, .value = 1000) ==
	    7 * BLOCK_TOKENS)
		return true;
	ASK(*engine, .what = SHARE_CLOSE);
	return false;
}

/* All or none: without them nothing is had. */
static bool is_granted(const struct share_engine *engine, uint32_t blocks)
{
	struct share_answer answer =
		ANSWER(*engine, .what = SHARE_OPEN, .number = blocks * BLOCK_TOKENS, .value = 5000);

	assert_true(!answer.ret || answer.ret == -KVP_ENOBLOCKS);
	return !answer.ret;
}

static bool is_granted_eight_blocks(void *arg)
{
	return is_granted(arg, 8);
}

static bool is_granted_nine_blocks(void *arg)
{
	return is_granted(arg, 9);
}

/*
 * Guards last_use() and the line `.timeline` beside it in close.c, together with the stream's own store: blocks that a queued step still reads or
 * writes are nobody's else's until the stream has run, though their sequence is closed. Seven were complete and are only read, the eighth is
 * written. The step is the first of timeline 2, and the first of timeline 0 was reached: who names the wrong one gives them away.
 */
static void blocks_of_a_queued_step_go_to_nobody(void **state)
{
	(void)state;
	for (uint32_t way = 0; way < 2; way++) {
		struct kvt_daemon *daemon = start(ways[way]);
		struct share_engine user = attached(daemon);
		struct share_engine other = attached(daemon);

		ASK(user, .what = SHARE_OPEN, .number = 7 * BLOCK_TOKENS, .value = 1000);
		ASK(user, .what = SHARE_WRITE, .value = 7);
		ASK(user, .what = SHARE_CLOSE);
		ASK(user, .what = SHARE_GATE);
		ASK(user, .what = SHARE_PASS);
		kvt_wait_until(finds_seven_blocks, &user);
		ASK(user, .what = SHARE_GATE);
		ASK(user, .what = SHARE_WRITE, .value = 8, .number = 2);
		ASK(user, .what = SHARE_CLOSE);
		ASK(user, .what = SHARE_SYNC);
		assert_false(is_granted_eight_blocks(&other));
		ASK(user, .what = SHARE_PASS);
		kvt_wait_until(is_granted_eight_blocks, &other);
		share_engine_stop(&other);
		share_engine_stop(&user);
		kvt_daemon_stop(daemon);
	}
}

/* Guards the word `drained` in kvc_device_close() (attach_cuda.c): without it the next engine would wait for the grace of a process that goes on. */
static void an_engine_that_leaves_gives_back_at_once(void **state)
{
	(void)state;
	for (uint32_t way = 0; way < 2; way++) {
		struct kvt_daemon *daemon = start(ways[way]);
		struct share_engine first = attached(daemon);
		struct share_engine second = attached(daemon);

		ASK(first, .what = SHARE_OPEN, .number = 8 * BLOCK_TOKENS, .value = 1000);
		ASK(first, .what = SHARE_WRITE, .value = 7);
		/* Its context, its stream, and nothing of the library's. */
		assert_int_equal(ASK(first, .what = SHARE_LEAVE), 2);
		kvt_wait_until(is_granted_nine_blocks, &second);
		share_engine_stop(&second);
		share_engine_stop(&first);
		kvt_daemon_stop(daemon);
	}
}

/*
 * A dead writer's unfinished block is lost, and said to be before anything of it is used. Guards the load of the word in kvd_attachment_latch_one()
 * (attachment.c): a step that nobody's stream has reached would be complete.
 */
static void a_killed_writers_block_is_lost(void **state)
{
	(void)state;
	for (uint32_t way = 0; way < 2; way++) {
		struct kvt_daemon *daemon = start(ways[way]);
		struct share_engine writer = attached(daemon);
		struct share_engine reader = attached(daemon);

		ASK(writer, .what = SHARE_OPEN, .number = 2 * BLOCK_TOKENS, .value = 1000);
		ASK(writer, .what = SHARE_GATE);
		ASK(writer, .what = SHARE_WRITE, .value = 7);
		ASK(writer, .what = SHARE_SYNC);
		assert_int_equal(ASK(reader, .what = SHARE_OPEN, .number = 2 * BLOCK_TOKENS, .value = 1000,
				     .flags = KVP_OPEN_COMING),
				 2 * BLOCK_TOKENS);
		kill(writer.pid, SIGKILL);
		assert_int_equal(kvt_cuda_reap(writer.pid), 128 + SIGKILL);
		close(writer.socket_fd);
		assert_int_equal(ANSWER(reader, .what = SHARE_WAIT_READY).ret, -KVP_ELOST);
		ASK(reader, .what = SHARE_CLOSE);
		share_engine_stop(&reader);
		kvt_daemon_stop(daemon);
	}
}

/* Guards allow_access() (map_cuda.c), one call for all pieces, and check_device() (cuda.c), which compares the UUID. */
static void attach_maps_with_one_access_and_refuses_another_device(void **state)
{
	(void)state;
	for (uint32_t way = 0; way < 2; way++) {
		struct kvt_daemon *daemon = start(ways[way]);
		struct share_engine engine = attached(daemon);
		struct share_engine stranger = share_engine_start(daemon);
		struct share_answer answer;

		assert_int_equal(kvt_cuda_calls(engine.pid, "cuMemSetAccess"), way);
		assert_int_equal(kvt_cuda_calls(engine.pid, "cuIpcOpenMemHandle"), !way);
		assert_true(kvt_cuda_calls(engine.pid, "cuMemImportFromShareableHandle") <= 256 * way);
		answer = ANSWER(stranger, .what = SHARE_ATTACH, .number = 1);
		assert_int_equal(answer.ret, -KVP_EDEVICE);
		assert_non_null(strstr(answer.text, "the context is of GPU-"));
		share_engine_stop(&stranger);
		share_engine_stop(&engine);
		kvt_daemon_stop(daemon);
	}
}

/* Every call that an attach makes fails once. Guards unmap() in create() (map_cuda.c) and drop_all() (cuda.c). What is left is the process's own context and stream; then it attaches. */
static void no_failed_call_of_an_attach_leaves_anything(void **state)
{
	(void)state;
	for (uint32_t way = 0; way < 2; way++) {
		struct kvt_daemon *daemon = start(ways[way]);
		struct share_engine engine = share_engine_start(daemon);
		struct share_answer answer = {.ret = -1};
		uint32_t n;

		for (n = 1; answer.ret; n++) {
			answer = ANSWER(engine, .what = SHARE_TRY, .number = n);
			assert_int_equal(answer.number, 2);
			if (answer.ret)
				assert_non_null(strstr(answer.text, "CUDA_ERROR_OUT_OF_MEMORY"));
		}
		assert_true(n > 10);
		ASK(engine, .what = SHARE_ATTACH);
		share_engine_stop(&engine);
		kvt_daemon_stop(daemon);
	}
}

/*
 * Guards is_quiet() in attach_cuda.c, and that the kernels are loaded last: the driver's unload waits for all work of the context. What the
 * engine's own streams do is not ours to wait for when the daemon has refused.
 */
static void a_refused_attach_waits_for_no_stream(void **state)
{
	(void)state;
	for (uint32_t way = 0; way < 2; way++) {
		struct kvt_daemon *daemon = start_with(ways[way], "--set=pool.p.max_engines=1");
		struct share_engine first = attached(daemon);
		struct share_engine second = share_engine_start(daemon);

		ASK(second, .what = SHARE_GATE);
		assert_int_equal(ANSWER(second, .what = SHARE_ATTACH).ret, -KVP_ELIMIT);
		assert_int_equal(kvt_cuda_calls(second.pid, "cuCtxSynchronize"), 0);
		ASK(second, .what = SHARE_PASS);
		/* Its context, its stream, and the page of its gate. */
		assert_int_equal(ASK(second, .what = SHARE_LEAVE), 3);
		share_engine_stop(&second);
		share_engine_stop(&first);
		kvt_daemon_stop(daemon);
	}
}

static bool says_gone(void *arg)
{
	return ANSWER(*(struct share_engine *)arg, .what = SHARE_CHECK).ret == -KVP_EDAEMON;
}

/* Guards kvc_device_check() (attach_cuda.c): an allocation of a dead daemon's must be let go of; memory of pieces stays with who has it. */
static void a_dead_daemons_allocation_is_let_go_of(void **state)
{
	(void)state;
	for (uint32_t way = 0; way < 2; way++) {
		struct kvt_daemon *daemon = start(ways[way]);
		struct share_engine engine = attached(daemon);

		ASK(engine, .what = SHARE_CHECK);
		kvt_daemon_kill(daemon);
		if (way == 0)
			kvt_wait_until(says_gone, &engine);
		else
			ASK(engine, .what = SHARE_CHECK);
		assert_int_equal(ASK(engine, .what = SHARE_LEAVE), 2);
		share_engine_stop(&engine);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(what_one_engine_writes_another_reads_when_its_stream_has_run),
		cmocka_unit_test(blocks_of_a_queued_step_go_to_nobody),
		cmocka_unit_test(an_engine_that_leaves_gives_back_at_once),
		cmocka_unit_test(a_killed_writers_block_is_lost),
		cmocka_unit_test(attach_maps_with_one_access_and_refuses_another_device),
		cmocka_unit_test(no_failed_call_of_an_attach_leaves_anything),
		cmocka_unit_test(a_refused_attach_waits_for_no_stream),
		cmocka_unit_test(a_dead_daemons_allocation_is_let_go_of),
	};

	(void)argc;
	setenv("FAKECUDA_KERNELS", SIMT_KERNELS, 0);
	setenv("FAKECUDA_DELAY_US", "50", 0);
	kvt_cuda_start(argv);
	if (kvt_cuda_role())
		return share_engine_main();
	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
