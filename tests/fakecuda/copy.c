/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies and fills. From registered memory a copy reads when its turn comes, so that a buffer that is filled
 * again too early shows; from or to other host memory the driver can't go on by itself: the call waits until
 * the copy is done, and is counted.
 */
#include "fake.h"

static bool stream_empty(void *arg)
{
	return fake_stream_idle(arg);
}

/* `host`: NULL for copies between device memory. */
static unsigned copy(uint64_t to, uint64_t from, uint64_t bytes, const void *host,
		     struct kvw_cuda_stream *handle)
{
	struct fake_stream *stream = fake_stream_get(handle);
	struct fake_op op = {.kind = FAKE_OP_COPY, .to = to, .bytes = bytes, .u.copy.from = from};
	unsigned result;

	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	if (!bytes)
		return 0;
	result = fake_stream_push(stream, &op);
	if (result || !host || fake_host_registered(host, bytes) || stream->capture)
		return result;
	fake_self()->blocking_copies++;
	return fake_wait(stream->context, stream_empty, stream);
}

FAKE_ENTRY(cuMemcpyHtoDAsync, (uint64_t to, const void *from, size_t bytes, struct kvw_cuda_stream *stream),
	   (to, from, bytes, stream))
{
	if (!from || fake_range_check(to, bytes))
		return KVW_CUDA_INVALID_VALUE;
	return copy(to, (uint64_t)(uintptr_t)from, bytes, from, stream);
}

FAKE_ENTRY(cuMemcpyDtoHAsync, (void *to, uint64_t from, size_t bytes, struct kvw_cuda_stream *stream),
	   (to, from, bytes, stream))
{
	if (!to || fake_range_check(from, bytes))
		return KVW_CUDA_INVALID_VALUE;
	return copy((uint64_t)(uintptr_t)to, from, bytes, to, stream);
}

FAKE_ENTRY(cuMemcpyDtoDAsync, (uint64_t to, uint64_t from, size_t bytes, struct kvw_cuda_stream *stream),
	   (to, from, bytes, stream))
{
	if (fake_range_check(to, bytes) || fake_range_check(from, bytes))
		return KVW_CUDA_INVALID_VALUE;
	return copy(to, from, bytes, NULL, stream);
}

static unsigned set(uint64_t to, uint32_t value, uint32_t width, size_t count, struct kvw_cuda_stream *handle)
{
	struct fake_stream *stream = fake_stream_get(handle);
	struct fake_op op = {
		.kind = FAKE_OP_SET, .to = to, .bytes = (uint64_t)count * width, .u.set = {value, width}};

	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	if (to % width || count > UINT64_MAX / width || fake_range_check(to, op.bytes))
		return KVW_CUDA_INVALID_VALUE;
	return count ? fake_stream_push(stream, &op) : 0;
}

FAKE_ENTRY(cuMemsetD8Async, (uint64_t to, unsigned char value, size_t count, struct kvw_cuda_stream *stream),
	   (to, value, count, stream))
{
	return set(to, value, 1, count, stream);
}

FAKE_ENTRY(cuMemsetD32Async, (uint64_t to, unsigned value, size_t count, struct kvw_cuda_stream *stream),
	   (to, value, count, stream))
{
	return set(to, value, 4, count, stream);
}
