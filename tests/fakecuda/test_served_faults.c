/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes wrong with the driver or the device under a serving daemon: lost, stuck, absent, and every call
 * failing once. A pool on the host beside it is served all the same.
 */
#include "served.h"

#include <kvpool/error.h>

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define HOST_POOL                                                                                            \
	"--set=pool.h.blocks=8", "--set=pool.h.block_tokens=16", "--set=pool.h.planes=k f16 1x128",          \
		"--set=pool.h.pages=4k"

static const char *const both[] = {HOST_POOL, SERVED_POOL, "--set=pool.p.share=ipc",
				   "--set=pool.p.device_grace_ms=0", NULL};

/* An attach to this pool: 0 or the error, with its text in raw->error. */
static int attach_to(struct kvt_raw *raw, const char *pool)
{
	struct kvw_msg_ATTACH attach = kvt_attach_message();

	attach.pool = kvw_text_of(pool);
	return kvt_raw_ask(raw, KVW_MSG_ATTACH, &attach);
}

/* One that maps nothing of the pool itself. */
static struct kvt_raw *engine_of(const struct kvt_daemon *daemon)
{
	const struct kvw_msg_MAPPED mapped = {.unused = 0};
	struct kvw_msg_ATTACH attach = kvt_attach_message();
	struct kvt_raw *raw = kvt_raw_hello(daemon);

	attach.pool = kvw_text_of("p");
	assert_int_equal(kvt_raw_attach(raw, &attach), 0);
	kvt_raw_map_silently(raw);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_MAPPED, &mapped), 0);
	return raw;
}

static void end_engine(const struct kvt_daemon *daemon, struct kvt_raw *engine)
{
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	uint64_t session = engine->session;

	atomic_store(&kvt_channel(engine)->drained, 1);
	kvt_raw_close(engine);
	kvt_wait_gone(admin, session);
	kvt_raw_close(admin);
}

static void must_serve_the_host_pool(const struct kvt_daemon *daemon)
{
	struct kvt_raw *raw = kvt_raw_hello(daemon);

	assert_int_equal(attach_to(raw, "h"), 0);
	kvt_raw_close(raw);
}

static void health_of(const struct kvt_daemon *daemon, char health[512], char off[512])
{
	const struct kvw_msg_STATUS request = {.unused = 0};
	struct kvt_raw *raw = kvt_raw_hello(daemon);

	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_STATUS, &request), 0);
	kvw_text_copy(raw->answer.STATUS_OK.health, health, 512);
	kvw_text_copy(raw->answer.STATUS_OK.off, off, 512);
	kvt_raw_close(raw);
}

/*
 * Guards end_without_device() in session.c: without it the engine waits for ever for steps that will not be
 * reached. And the call that kvd_cuda_look() in device_cuda.c makes in each way of sharing: without it nobody learns of the loss.
 */
static void lose_device(const char *const *options, const char *function)
{
	struct kvt_daemon *daemon = kvt_daemon_start(options);
	struct kvt_raw *engine = engine_of(daemon);
	struct kvt_raw *late = kvt_raw_hello(daemon);
	char health[512];
	char off[512];

	kvt_cuda_fail_in(daemon->pid, function, 1, KVW_CUDA_ECC_UNCORRECTABLE);
	kvt_raw_must_be_revoked(engine, -KVP_EDEVICE);
	assert_non_null(strstr(engine->error, "CUDA_ERROR_ECC_UNCORRECTABLE"));
	assert_int_equal(kvt_channel(engine)->revoked, -KVP_EDEVICE);
	assert_int_equal(attach_to(late, "p"), -KVP_EDEVICE);
	assert_non_null(strstr(late->error, "has lost its device"));
	health_of(daemon, health, off);
	assert_non_null(strstr(health, "pool 'p' has lost its device"));
	must_serve_the_host_pool(daemon);
	kvt_raw_close(late);
	end_engine(daemon, engine);
	kvt_daemon_stop(daemon);
}

static void a_lost_device_ends_its_engines_and_no_others(void **state)
{
	static const char *const by_fd[] = {HOST_POOL, SERVED_POOL, "--set=pool.p.share=fd",
					    "--set=pool.p.device_grace_ms=0", NULL};

	(void)state;
	lose_device(both, "cuStreamSynchronize");
	lose_device(by_fd, "cuMemExportToShareableHandle");
}

static bool hangs(void *arg)
{
	return kvt_cuda_hanging(*(pid_t *)arg) > 0;
}

/* Guards worker_of() and the worker that kvd_served_pool_look() is given: on any other one, attaches would wait. */
static void a_stuck_driver_keeps_nobody_waiting(void **state)
{
	const struct kvw_msg_STATUS request = {.unused = 0};
	struct kvt_daemon *daemon = kvt_daemon_start(both);
	struct kvt_raw *engine = engine_of(daemon);
	struct kvt_raw *other;
	struct kvw_text job;

	(void)state;
	kvt_cuda_hang(daemon->pid, "cuStreamSynchronize");
	kvt_wait_until(hangs, &daemon->pid);
	must_serve_the_host_pool(daemon);
	other = engine_of(daemon);
	assert_int_equal(kvt_raw_ask(other, KVW_MSG_STATUS, &request), 0);
	job = other->answer.STATUS_OK.worker_job;
	assert_int_equal(job.length, strlen("look at a CUDA device"));
	assert_memory_equal(job.at, "look at a CUDA device", job.length);
	assert_int_equal(kvt_cuda_process(daemon->pid)->first_thread_calls, 0);
	kvt_cuda_hang(daemon->pid, NULL);
	end_engine(daemon, other);
	end_engine(daemon, engine);
	kvt_daemon_stop(daemon);
}

static struct kvt_daemon *start_hasty(void)
{
	static const char *const options[] = {HOST_POOL, SERVED_POOL, "--set=pool.p.share=ipc",
					      "--stop-timeout-ms=300", NULL};

	return kvt_daemon_start(options);
}

/*
 * Guards kvd_ending_begin() in kvd_server_close(): without it TERM waits for the driver for ever, on the worker's join or in giving the
 * pool back.
 */
static void a_stuck_driver_does_not_keep_the_daemon_from_ending(void **state)
{
	static const struct {
		const char *function;
		bool before; /* it hangs on the worker when TERM comes, or on what comes of it */
		const char *said;
	} cases[] = {
		{"cuStreamSynchronize", true, "still waits for a worker at 'look at a CUDA device'"},
		{"cuMemFree", false, "still waits for the driver to take pool 'p' back"},
	};

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct kvt_daemon *daemon = start_hasty();
		/* While there is one the device is looked at. */
		struct kvt_raw *engine = engine_of(daemon);
		int status;

		kvt_cuda_hang(daemon->pid, cases[i].function);
		if (cases[i].before)
			kvt_wait_until(hangs, &daemon->pid);
		assert_int_equal(kill(daemon->pid, SIGTERM), 0);
		status = kvt_daemon_wait(daemon);
		assert_true(WIFEXITED(status));
		assert_int_equal(WEXITSTATUS(status), 2);
		assert_true(kvt_daemon_logged(daemon, cases[i].said));
		/* What others see is gone. */
		assert_int_equal(access(daemon->socket, F_OK), -1);
		kvt_raw_close(engine);
		kvt_daemon_kill(daemon);
	}
}

/* Guards kvd_served_pool_fault() where POOL and ATTACH ask for it, and the daemon's going on in poll_clock(). */
static void without_a_driver_the_other_pools_are_served(void **state)
{
	static const char *const only[] = {SERVED_POOL, NULL};
	struct kvw_msg_POOL pool = {.name = kvw_text_of("p")};
	struct kvt_daemon *daemon;
	struct kvt_raw *raw;
	char health[512];
	char off[512];

	(void)state;
	setenv("FAKECUDA_STUB", "1", 1);
	daemon = kvt_daemon_start(both);
	raw = kvt_raw_hello(daemon);
	assert_int_equal(kvt_raw_ask(raw, KVW_MSG_POOL, &pool), -KVP_EDEVICE);
	assert_non_null(strstr(raw->error, "is switched off"));
	assert_int_equal(attach_to(raw, "p"), -KVP_EDEVICE);
	assert_non_null(strstr(raw->error, "stub"));
	health_of(daemon, health, off);
	assert_non_null(strstr(health, "pool 'p' is switched off"));
	assert_non_null(strstr(off, "pool 'p' on cuda:0: "));
	must_serve_the_host_pool(daemon);
	kvt_raw_close(raw);
	kvt_daemon_stop(daemon);
	daemon = kvt_daemon_launch(only);
	assert_int_equal(WEXITSTATUS(kvt_daemon_wait(daemon)), 1);
	assert_true(kvt_daemon_logged(daemon, "no pool is left to serve"));
	unsetenv("FAKECUDA_STUB");
	kvt_daemon_kill(daemon);
}

/*
 * `failing`: the call that fails. When it had not come before the stop it may be one that gives back: then
 * something is left.
 */
static uint64_t start_and_stop(const char *share, uint64_t failing)
{
	char share_option[64];
	const char *options[] = {HOST_POOL, SERVED_POOL, share_option, NULL};
	struct kvt_daemon *daemon;
	uint64_t calls;
	char left[256];
	pid_t pid;

	snprintf(share_option, sizeof(share_option), "--set=pool.p.share=%s", share);
	daemon = kvt_daemon_start(options);
	pid = daemon->pid;
	must_serve_the_host_pool(daemon);
	calls = kvt_cuda_process(pid)->calls;
	kvt_daemon_stop(daemon);
	if (calls >= failing && kvt_cuda_live(pid, left, sizeof(left)))
		fail_msg("%s: the daemon left %s", share, left);
	return calls;
}

/* A daemon under ThreadSanitizer takes half a second to start; its threads are the same in each of them. */
#ifdef __SANITIZE_THREAD__
#define EACH 5u
#else
#define EACH 1u
#endif

/* Guards every release on the way of device_cuda*.c, in a daemon that goes on without the pool. */
static void a_failure_of_any_call_leaves_nothing(void **state)
{
	static const char *const shares[] = {"auto", "ipc"};
	char number[24];

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		uint64_t calls = start_and_stop(shares[i], 0);

		setenv("FAKECUDA_FAIL_CODE", "999", 1);
		for (uint64_t call = 1; call <= calls; call += EACH) {
			snprintf(number, sizeof(number), "%llu", (unsigned long long)call);
			setenv("FAKECUDA_FAIL_CALL", number, 1);
			start_and_stop(shares[i], call);
		}
		unsetenv("FAKECUDA_FAIL_CALL");
		unsetenv("FAKECUDA_FAIL_CODE");
		if (calls < 12)
			fail_msg("%s: only %llu calls", shares[i], (unsigned long long)calls);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_lost_device_ends_its_engines_and_no_others),
		cmocka_unit_test(a_stuck_driver_keeps_nobody_waiting),
		cmocka_unit_test(a_stuck_driver_does_not_keep_the_daemon_from_ending),
		cmocka_unit_test(without_a_driver_the_other_pools_are_served),
		cmocka_unit_test(a_failure_of_any_call_leaves_nothing),
	};

	(void)argc;
	kvt_cuda_start(argv);
	kvt_watchdog(120);
	return cmocka_run_group_tests(tests, fixture_setup, fixture_teardown);
}
