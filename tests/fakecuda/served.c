/* SPDX-License-Identifier: Apache-2.0 */
#include "served.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct kvt_daemon *served_start(const char *share, const char *grace_ms)
{
	char share_option[64];
	char grace_option[64];
	const char *options[] = {SERVED_POOL, share_option, grace_option, NULL};
	struct kvt_daemon *daemon;

	snprintf(share_option, sizeof(share_option), "--set=pool.p.share=%s", share);
	snprintf(grace_option, sizeof(grace_option), "--set=pool.p.device_grace_ms=%s", grace_ms);
	daemon = kvt_daemon_start(options);
	setenv(SERVED_SOCKET, daemon->socket, 1);
	return daemon;
}

void served_stop(struct kvt_daemon *daemon)
{
	struct kvt_raw *admin = kvt_raw_hello(daemon);
	pid_t pid = daemon->pid;
	char left[256];

	kvt_wait_free(admin, SERVED_BLOCKS - kvt_pool_state(admin).cached);
	kvt_must_check(admin);
	kvt_raw_close(admin);
	/* Its loop is its first thread, and may not call the driver while it serves. */
	assert_int_equal(kvt_cuda_process(pid)->first_thread_calls, 0);
	kvt_daemon_stop(daemon);
	if (kvt_cuda_live(pid, left, sizeof(left)))
		fail_msg("the daemon left %s", left);
}

struct kvt_daemon *served_of_role(void)
{
	static struct kvt_daemon daemon;

	snprintf(daemon.socket, sizeof(daemon.socket), "%s", getenv(SERVED_SOCKET));
	return &daemon;
}

static uint64_t map_chunks(struct kvt_memory *memory)
{
	static const struct kvw_cuda_access access = {{KVW_CUDA_LOCATION_DEVICE, 0},
						      KVW_CUDA_ACCESS_READ_WRITE};
	uint64_t pointer;
	uint64_t handle;

	OK(cuMemAddressReserve, &pointer, memory->bytes, 0, 0, 0);
	for (uint32_t i = 0; i < memory->chunks; i++) {
		uint64_t begin = i * memory->chunk_bytes;
		uint64_t rest = memory->bytes - begin;

		OK(cuMemImportFromShareableHandle, &handle, (void *)(intptr_t)memory->fds[i],
		   KVW_CUDA_HANDLE_FD);
		close(memory->fds[i]);
		OK(cuMemMap, pointer + begin, rest < memory->chunk_bytes ? rest : memory->chunk_bytes, 0,
		   handle, 0);
		OK(cuMemRelease, handle);
	}
	OK(cuMemSetAccess, pointer, memory->bytes, &access, 1);
	return pointer;
}

static uint64_t map_pool(struct kvt_memory *memory)
{
	struct kvw_cuda_ipc_handle handle;
	struct kvw_cuda_uuid uuid;
	uint64_t pointer = 0;

	OK(cuDeviceGetUuid, &uuid, 0);
	assert_memory_equal(memory->uuid, uuid.bytes, sizeof(uuid.bytes));
	if (memory->share == KVW_SHARE_FD)
		return map_chunks(memory);
	memcpy(handle.bytes, memory->handle, sizeof(handle.bytes));
	OK(cuIpcOpenMemHandle, &pointer, handle, KVW_CUDA_IPC_LAZY_PEER);
	return pointer + memory->offset;
}

struct served_engine served_attach(const struct kvt_daemon *daemon)
{
	const struct kvw_msg_ATTACH attach = kvt_attach_message();
	const struct kvw_msg_MAPPED mapped = {.unused = 0};
	struct served_engine engine = {.raw = kvt_raw_hello(daemon)};
	void *timelines;

	assert_int_equal(kvt_raw_attach(engine.raw, &attach), 0);
	kvt_raw_map_silently(engine.raw);
	engine.pointer = map_pool(&engine.raw->device);
	timelines = engine.raw->memory[KVT_TIMELINES];
	OK(cuMemHostRegister, timelines, 4096, KVW_CUDA_HOST_PORTABLE | KVW_CUDA_HOST_DEVICEMAP);
	OK(cuMemHostGetDevicePointer, &engine.words, timelines, 0);
	assert_int_equal(kvt_raw_ask(engine.raw, KVW_MSG_MAPPED, &mapped), 0);
	return engine;
}

void served_unmap(struct served_engine *engine)
{
	const struct kvt_memory *memory = &engine->raw->device;

	OK(cuStreamSynchronize, stream);
	OK(cuMemHostUnregister, engine->raw->memory[KVT_TIMELINES]);
	if (memory->share == KVW_SHARE_FD) {
		OK(cuMemUnmap, engine->pointer, memory->bytes);
		OK(cuMemAddressFree, engine->pointer, memory->bytes);
	} else {
		OK(cuIpcCloseMemHandle, engine->pointer - memory->offset);
	}
}

void served_say_drained(struct served_engine *engine)
{
	atomic_store_explicit(&kvt_channel(engine->raw)->drained, 1, memory_order_release);
}

void served_detach(struct served_engine *engine)
{
	served_unmap(engine);
	served_say_drained(engine);
	kvt_raw_close(engine->raw);
	engine->raw = NULL;
}
