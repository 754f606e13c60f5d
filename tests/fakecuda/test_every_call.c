/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every function of the driver's table that kvpoold or libkvpool calls fails, at its first, its second and its last call, in a life that ends as lives
 * do: with the failing function failing while everything is given back too. Nothing may be left. The table is walked, not a list: a function that
 * nobody lets fail here must be in `others`, and one that stands there must not be called.
 */
#include "share_engine.h"

#include "daemon/device_cuda.h"
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/kvpool.h>

#define TOKENS (SHARE_MATCHED * SHARE_BLOCK_TOKENS)
#define WAIT_MS 20000u
#define PATH_VARIABLE "KVT_EVERY_CALL_SOCKET"
#define POOL_BYTES (UINT64_C(130) << 20)

static const char *const names[] = {
#define KVW_CUDA_FUNCTION(name, version, arguments) #name,
#include "ipc/cuda_driver.def"
#undef KVW_CUDA_FUNCTION
};
#define FUNCTIONS (sizeof(names) / sizeof(names[0]))

/* Called by tests, benchmarks and tools alone, or not able to fail. */
static const char *const others[] = {
	"cuGetErrorName",
	"cuGetErrorString",
	"cuDeviceGetName",
	"cuDeviceGetPCIBusId",
	"cuDeviceTotalMem",
	"cuCtxSetCurrent",
	"cuPointerGetAttribute",
	"cuIpcGetEventHandle",
	"cuIpcOpenEventHandle",
	"cuStreamCreate",
	"cuStreamDestroy",
	"cuStreamQuery",
	"cuStreamGetCtx",
	"cuStreamWaitEvent",
	"cuStreamWriteValue32",
	"cuStreamWaitValue32",
	"cuStreamBeginCapture",
	"cuStreamEndCapture",
	"cuGraphInstantiateWithFlags",
	"cuGraphLaunch",
	"cuGraphDestroy",
	"cuGraphExecDestroy",
	"cuEventCreate",
	"cuEventRecord",
	"cuEventQuery",
	"cuEventSynchronize",
	"cuEventElapsedTime",
	"cuEventDestroy",
	"cuLibraryLoadData",
	"cuLibraryUnload",
	"cuLibraryGetKernel",
	"cuKernelGetFunction",
	"cuFuncGetAttribute",
	"cuLaunchKernelEx",
	"cuTensorMapEncodeTiled",
};

struct counts {
	uint64_t of[FUNCTIONS];
};

static uint64_t failures[FUNCTIONS];

/* A process under ThreadSanitizer takes half a second to start. */
#ifdef __SANITIZE_THREAD__
#define ONLY_FIRST true
#else
#define ONLY_FIRST false
#endif

/*
 * The calls that fail: 1, 2 and the last; 0 behind it. Of entering a context the last ones are for giving back what lies in it, which can be done in
 * it alone: on a real device they fail for a context that is gone, with all in it.
 */
static uint64_t next_to_fail(size_t function, uint64_t n, uint64_t calls, bool only_first)
{
	bool enters =
		!strcmp(names[function], "cuCtxGetCurrent") || !strcmp(names[function], "cuCtxPushCurrent");
	uint64_t most = enters && calls > 2 ? 2 : calls;

	if (n >= most || (n && only_first))
		return 0;
	return n < 2 ? n + 1 : most;
}

static struct counts count_now(void)
{
	struct counts counts;

	for (size_t f = 0; f < FUNCTIONS; f++)
		counts.of[f] = kvt_cuda_process(getpid())->function_calls[f];
	return counts;
}

static struct counts count_since(const struct counts *before)
{
	struct counts counts = count_now();

	for (size_t f = 0; f < FUNCTIONS; f++)
		counts.of[f] -= before->of[f];
	return counts;
}

/* ------------------------------------------------------------------ the daemon's device */

struct device_case {
	const char *device;
	enum kvd_share share;
};

static void use_memory(struct kvd_memory *memory)
{
	static const _Atomic int never;
	_Atomic uint64_t progress = 0;
	char byte = 0;

	if (kvd_device_cuda.populate(memory, &progress, &never))
		return;
	(void)kvd_cuda_look(memory);
	(void)kvd_device_cuda.write(memory, POOL_BYTES / 2, &byte, 1);
	(void)kvd_device_cuda.read(memory, POOL_BYTES / 2, &byte, 1);
}

/* From creating to destroying; with the call that is to fail failing all the way. */
static struct counts live_as_device(const struct device_case *this, const char *function, uint64_t n)
{
	const struct kvd_memory_params params = {
		.name = "test", .bytes = POOL_BYTES, .device = this->device, .share = this->share};
	struct kvd_memory *memory = NULL;
	struct counts before = count_now();
	struct counts counts;
	int fds = kvt_count_fds();
	char left[256];

	assert_int_equal(kvd_device_cuda.create(&params, &memory), 0);
	if (function)
		kvt_cuda_fail(function, n, KVW_CUDA_UNKNOWN);
	use_memory(memory);
	kvd_device_cuda.destroy(memory);
	kvt_cuda_fail(NULL, 0, 0);
	counts = count_since(&before);
	if (kvt_cuda_live(getpid(), left, sizeof(left)))
		fail_msg("daemon: call %llu of %s failed and left %s", (unsigned long long)n,
			 function ? function : "nothing", left);
	assert_int_equal(kvt_count_fds(), fds);
	return counts;
}

/* Guards every release in device_cuda.c and device_cuda_chunks.c, and that destroy() goes on behind a failed one. */
static void the_daemons_calls_fail_and_leave_nothing(void **state)
{
	static const struct device_case cases[] = {{"cuda:0", KVD_SHARE_FD},
						   {"cuda:0000:19:00.0", KVD_SHARE_IPC}};

	(void)state;
	for (size_t i = 0; i < 2; i++) {
		struct counts all = live_as_device(&cases[i], NULL, 0);

		for (size_t f = 0; f < FUNCTIONS; f++)
			for (uint64_t n = 0; (n = next_to_fail(f, n, all.of[f], false));)
				failures[f] += live_as_device(&cases[i], names[f], n).of[f] >= n;
	}
}

/* ------------------------------------------------------------------ an engine */

struct life_order {
	char function[64]; /* "": none */
	uint64_t n;
	uint32_t staging;
	uint32_t alone; /* reads nothing of the writer's */
};

struct life_told {
	int ret;
	int64_t left;
	char text[256];
	struct counts counts;
};

static int open_and_stage(struct kvp_client *client, const struct life_order *order)
{
	const struct kvp_correct_params correction = {.size = sizeof(correction), .stream = stream};
	const struct kvp_batch_params params = {.size = sizeof(params), .staging = order->staging};
	struct kvp_batch_view view = {.size = sizeof(view)};
	uint32_t tokens[TOKENS + 1];
	const struct kvp_open_request request = {.size = sizeof(request),
						 .flags = order->alone ? 0 : KVP_OPEN_COMING,
						 .tokens = tokens,
						 .token_count = order->alone ? 1 : TOKENS + 1,
						 .max_cached_tokens = UINT32_MAX};
	struct kvp_batch *batch;
	struct kvp_seq *seq;
	int result = 0;
	int ret;

	for (uint32_t i = 0; i <= TOKENS; i++)
		tokens[i] = (uint32_t)atoi(getenv("FIRST")) + i;
	ret = kvp_open(client, &request, 1, WAIT_MS, &result, &seq);
	ret = ret ? ret : result;
	if (!ret)
		ret = kvp_batch_create(client, &params, &batch);
	if (!ret)
		ret = kvp_batch_set(batch, &seq, 1);
	if (!ret)
		ret = kvp_batch_begin(batch, NULL, 0, 1, &view);
	if (!ret)
		ret = kvp_batch_stage(batch, stream, &view);
	if (!ret)
		ret = kvp_batch_correct_lens(batch, &correction);
	return ret ? ret : kvp_step_done_on(client, 0, 1, stream);
}

static int attach(struct kvp_client *client)
{
	const struct kvp_attach_params params = {
		.size = sizeof(params), .max_seqs = 4, .max_seq_tokens = 512};

	return kvp_attach(client, &params);
}

/*
 * The role "life": an engine without a context of its own, from its connection to its close. Its step waits for the writer's, which ends when the test
 * has been told that everything is queued.
 */
static int life_role(void)
{
	const struct kvp_connect_params connect = {
		.size = sizeof(connect), .path = getenv(PATH_VARIABLE), .timeout_ms = WAIT_MS};
	struct life_told told = {0};
	struct kvp_client *client;
	struct life_order order;
	struct counts before;

	kvt_watchdog(60);
	fixture_setup(NULL);
	OK(cuCtxPopCurrent, NULL);
	kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &order, sizeof(order), NULL);
	assert_int_equal(kvp_connect(&connect, &client), 0);
	before = count_now();
	if (order.function[0])
		kvt_cuda_fail(order.function, order.n, KVW_CUDA_OUT_OF_MEMORY);
	told.ret = attach(client);
	if (!told.ret)
		told.ret = open_and_stage(client, &order);
	if (told.ret)
		snprintf(told.text, sizeof(told.text), "%s", kvp_last_error());
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, &told, sizeof(told), -1);
	kvt_cuda_receive(KVT_CUDA_ROLE_SOCKET, &order, sizeof(order), NULL);
	kvp_close(client);
	kvt_cuda_fail(NULL, 0, 0);
	told.counts = count_since(&before);
	/* Beside the context and the stream of the fixture's. */
	told.left = kvt_cuda_live(getpid(), told.text, sizeof(told.text)) - 2;
	kvt_cuda_send(KVT_CUDA_ROLE_SOCKET, &told, sizeof(told), -1);
	OK(cuCtxPushCurrent, context);
	fixture_teardown(NULL);
	return 0;
}

struct scene {
	struct kvt_daemon *daemon;
	struct share_engine writer;
	const char *attributes; /* of the living engine's device */
	uint32_t staging;
	uint32_t alone;
	uint32_t lives;
};

static void ask(const struct scene *scene, struct share_order order)
{
	struct share_answer answer = share_ask(&scene->writer, order);

	if (answer.ret < 0)
		print_error("order %u: %s\n", order.what, answer.text);
	assert_true(answer.ret >= 0);
}

#define ASK(scene, ...) ask((scene), (struct share_order){__VA_ARGS__})

static void begin_writing(struct scene *scene, uint32_t first)
{
	ASK(scene, .what = SHARE_OPEN, .number = TOKENS, .value = first);
	ASK(scene, .what = SHARE_GATE);
	ASK(scene, .what = SHARE_WRITE, .value = first);
	ASK(scene, .what = SHARE_SYNC);
}

static struct counts live_as_engine(struct scene *scene, const char *function, uint64_t n)
{
	uint32_t first = 1000 * ++scene->lives;
	struct life_order order = {.n = n, .staging = scene->staging, .alone = scene->alone};
	char first_variable[32];
	char path[256];
	const char *const environment[] = {path, first_variable, scene->attributes, NULL};
	struct life_told told;
	int role_socket;
	pid_t pid;

	snprintf(order.function, sizeof(order.function), "%s", function ? function : "");
	snprintf(first_variable, sizeof(first_variable), "FIRST=%u", first);
	snprintf(path, sizeof(path), PATH_VARIABLE "=%s", scene->daemon->socket);
	begin_writing(scene, first);
	pid = kvt_cuda_spawn("life", environment, &role_socket);
	kvt_cuda_send(role_socket, &order, sizeof(order), -1);
	kvt_cuda_receive(role_socket, &told, sizeof(told), NULL);
	if (!function && told.ret)
		fail_msg("a life in which nothing fails: %s", told.text);
	ASK(scene, .what = SHARE_PASS);
	ASK(scene, .what = SHARE_CLOSE);
	kvt_cuda_send(role_socket, &order, sizeof(order), -1);
	kvt_cuda_receive(role_socket, &told, sizeof(told), NULL);
	if (told.left)
		fail_msg("engine: call %llu of %s failed and left, beside two, %s", (unsigned long long)n,
			 order.function, told.text);
	assert_int_equal(kvt_cuda_reap(pid), 0);
	close(role_socket);
	return told.counts;
}

static void raise_scene(struct scene *scene, const char *share, const char *attributes)
{
	char option[64];
	const char *const options[] = {"--set=pool.p.blocks=32",
				       "--set=pool.p.block_tokens=16",
				       "--set=pool.p.planes=k bf16 1x64",
				       "--set=pool.p.devices=cuda:0",
				       "--set=pool.p.device_grace_ms=0",
				       option,
				       "--poll-ms=1",
				       NULL};

	snprintf(option, sizeof(option), "--set=pool.p.share=%s", share);
	*scene = (struct scene){.daemon = kvt_daemon_start(options), .attributes = attributes};
	scene->writer = share_engine_start(scene->daemon);
	ASK(scene, .what = SHARE_ATTACH);
}

static void strike_scene(struct scene *scene)
{
	share_engine_stop(&scene->writer);
	kvt_daemon_stop(scene->daemon);
}

/* `known`: what has failed before is left out. */
static void sweep(struct scene *scene, bool known)
{
	struct counts all = live_as_engine(scene, NULL, 0);

	for (size_t f = 0; f < FUNCTIONS; f++)
		for (uint64_t n = 0;
		     !(known && failures[f]) && (n = next_to_fail(f, n, all.of[f], ONLY_FIRST));)
			failures[f] += live_as_engine(scene, names[f], n).of[f] >= n;
}

/* Guards every release on the way of attach_cuda.c, map_cuda.c, pin_cuda.c, peers_cuda.c, launch_cuda.c, stage_cuda.c and cuda.c, and their order. */
static void an_engines_calls_fail_and_leave_nothing(void **state)
{
	static const struct {
		const char *share;
		const char *attributes;
		uint32_t staging;
		uint32_t alone;
		bool known;
	} cases[] = {
		{"ipc", "FAKECUDA_ATTRIBUTES=113=1", KVP_STAGING_ROWS, 0, false},
		{"fd", "FAKECUDA_ATTRIBUTES=113=1", KVP_STAGING_ROWS, 0, false},
		/* A whole copy; and a device whose streams can't store words. */
		{"fd", "FAKECUDA_ATTRIBUTES=113=1,122=0", KVP_STAGING_WHOLE, 1, true},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct scene scene;

		raise_scene(&scene, cases[i].share, cases[i].attributes);
		scene.staging = cases[i].staging;
		scene.alone = cases[i].alone;
		sweep(&scene, cases[i].known);
		strike_scene(&scene);
	}
}

/* The books begin with a process's first call. */
static int open_books(void **state)
{
	fixture_setup(state);
	return fixture_teardown(state);
}

static bool is_other(const char *name)
{
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (!strcmp(others[i], name))
			return true;
	return false;
}

/* Behind the other two. */
static void every_function_of_the_table_has_failed(void **state)
{
	(void)state;
	for (size_t f = 0; f < FUNCTIONS; f++) {
		if (!failures[f] && !is_other(names[f]))
			fail_msg("%s was never made to fail: nothing here calls it", names[f]);
		if (failures[f] && is_other(names[f]))
			fail_msg("%s is called, and failed: take it off the list of the others", names[f]);
	}
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_daemons_calls_fail_and_leave_nothing),
		cmocka_unit_test(an_engines_calls_fail_and_leave_nothing),
		cmocka_unit_test(every_function_of_the_table_has_failed),
	};

	(void)argc;
	setenv("FAKECUDA_KERNELS", SIMT_KERNELS, 0);
	setenv("FAKECUDA_DELAY_US", "50", 0);
	kvt_cuda_start(argv);
	if (kvt_cuda_role())
		return strcmp(kvt_cuda_role(), "life") ? share_engine_main() : life_role();
	kvt_watchdog(110);
	return cmocka_run_group_tests(tests, open_books, NULL);
}
