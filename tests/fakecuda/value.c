/* SPDX-License-Identifier: Apache-2.0 */
/* Words that streams write and wait for: in device memory or in registered host memory. */
#include "fake.h"

static unsigned push(enum fake_op_kind kind, struct kvw_cuda_stream *handle, uint64_t pointer, uint64_t value,
		     uint32_t width, unsigned flags)
{
	struct fake_stream *stream = fake_stream_get(handle);
	struct fake_op op = {.kind = kind, .to = pointer, .bytes = width, .u.word = {value, flags, width}};

	if (!stream)
		return KVW_CUDA_INVALID_HANDLE;
	if (pointer % width || fake_range_check(pointer, width))
		return KVW_CUDA_INVALID_VALUE;
	if (!fake_attribute(KVW_CUDA_ATTR_STREAM_MEM_OPS_64, stream->context->device))
		return KVW_CUDA_NOT_SUPPORTED;
	return fake_stream_push(stream, &op);
}

static bool bad_wait(unsigned flags)
{
	return (flags & ~(unsigned)KVW_CUDA_WAIT_FLUSH) > KVW_CUDA_WAIT_NOR;
}

FAKE_ENTRY(cuStreamWriteValue32,
	   (struct kvw_cuda_stream * stream, uint64_t pointer, uint32_t value, unsigned flags),
	   (stream, pointer, value, flags))
{
	return flags > 1 ? KVW_CUDA_INVALID_VALUE
			 : push(FAKE_OP_WRITE_VALUE, stream, pointer, value, 4, flags);
}

FAKE_ENTRY(cuStreamWriteValue64,
	   (struct kvw_cuda_stream * stream, uint64_t pointer, uint64_t value, unsigned flags),
	   (stream, pointer, value, flags))
{
	return flags > 1 ? KVW_CUDA_INVALID_VALUE
			 : push(FAKE_OP_WRITE_VALUE, stream, pointer, value, 8, flags);
}

FAKE_ENTRY(cuStreamWaitValue32,
	   (struct kvw_cuda_stream * stream, uint64_t pointer, uint32_t value, unsigned flags),
	   (stream, pointer, value, flags))
{
	return bad_wait(flags) ? KVW_CUDA_INVALID_VALUE
			       : push(FAKE_OP_WAIT_VALUE, stream, pointer, value, 4, flags);
}

FAKE_ENTRY(cuStreamWaitValue64,
	   (struct kvw_cuda_stream * stream, uint64_t pointer, uint64_t value, unsigned flags),
	   (stream, pointer, value, flags))
{
	return bad_wait(flags) ? KVW_CUDA_INVALID_VALUE
			       : push(FAKE_OP_WAIT_VALUE, stream, pointer, value, 8, flags);
}
