/* SPDX-License-Identifier: Apache-2.0 */
#include "fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

struct kvw_cuda *cuda;
struct kvw_cuda_error cuda_error;
struct kvw_cuda_context *context;
struct kvw_cuda_stream *stream;

void fixture_check(int ret, const char *file, int line)
{
	if (ret < 0)
		fprintf(stderr, "%s:%d: %s\n", file, line, cuda_error.text);
	_assert_true(ret == 0, "the call succeeds", file, line);
}

int fixture_setup(void **state)
{
	(void)state;
	fixture_check(kvw_cuda_open(&cuda, &cuda_error), __FILE__, __LINE__);
	OK(cuDevicePrimaryCtxRetain, &context, 0);
	OK(cuCtxPushCurrent, context);
	OK(cuStreamCreate, &stream, KVW_CUDA_STREAM_NON_BLOCKING);
	return 0;
}

int fixture_teardown(void **state)
{
	char left[512];

	(void)state;
	OK(cuStreamDestroy, stream);
	OK(cuCtxPopCurrent, NULL);
	OK(cuDevicePrimaryCtxRelease, 0);
	kvw_cuda_close(cuda);
	if (kvt_cuda_live(getpid(), left, sizeof(left)))
		fprintf(stderr, "left over: %s\n", left);
	assert_int_equal(kvt_cuda_live(getpid(), NULL, 0), 0);
	return 0;
}

void fill_words(uint64_t pointer, uint32_t value, size_t count)
{
	OK(cuMemsetD32Async, pointer, value, count, stream);
	OK(cuStreamSynchronize, stream);
}

void read_words(uint64_t pointer, uint32_t *out, size_t count)
{
	OK(cuMemcpyDtoHAsync, out, pointer, count * sizeof(*out), stream);
	OK(cuStreamSynchronize, stream);
}

size_t count_others(uint64_t pointer, uint32_t value, size_t count)
{
	uint32_t *words = malloc(count * sizeof(*words));
	size_t others = 0;

	assert_non_null(words);
	read_words(pointer, words, count);
	for (size_t i = 0; i < count; i++)
		others += words[i] != value;
	free(words);
	return others;
}

void *make_registered_page(uint64_t *out_pointer)
{
	void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	assert_true(page != MAP_FAILED);
	OK(cuMemHostRegister, page, 4096, KVW_CUDA_HOST_PORTABLE | KVW_CUDA_HOST_DEVICEMAP);
	OK(cuMemHostGetDevicePointer, out_pointer, page, 0);
	return page;
}

void drop_registered_page(void *page)
{
	OK(cuMemHostUnregister, page);
	munmap(page, 4096);
}
