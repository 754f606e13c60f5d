/* SPDX-License-Identifier: Apache-2.0 */
#include "blocks.h"

#include <malloc.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

/* More than any test has at a time. */
#define MAX_BLOCKS 65536

void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_memalign(size_t alignment, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__real_mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *memory, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_memalign(size_t alignment, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);
void *__wrap_mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *memory, size_t bytes);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gpu_block blocks[MAX_BLOCKS];
static size_t block_count;

static void *note(void *memory, size_t bytes, bool sparse)
{
	pthread_mutex_lock(&lock);
	if (memory && block_count < MAX_BLOCKS)
		blocks[block_count++] = (struct gpu_block){memory, bytes, sparse};
	pthread_mutex_unlock(&lock);
	return memory;
}

static void forget(const void *memory)
{
	pthread_mutex_lock(&lock);
	for (size_t i = block_count; i-- > 0;)
		if (blocks[i].base == memory) {
			blocks[i] = blocks[--block_count];
			break;
		}
	pthread_mutex_unlock(&lock);
}

void *__wrap_malloc(size_t bytes)
{
	return note(__real_malloc(bytes), bytes, false);
}

void *__wrap_calloc(size_t count, size_t bytes)
{
	return note(__real_calloc(count, bytes), count * bytes, false);
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	forget(memory);
	return note(__real_realloc(memory, bytes), bytes, false);
}

void *__wrap_memalign(size_t alignment, size_t bytes)
{
	return note(__real_memalign(alignment, bytes), bytes, false);
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
	return note(__real_aligned_alloc(alignment, bytes), bytes, false);
}

void __wrap_free(void *memory)
{
	forget(memory);
	__real_free(memory);
}

void *__wrap_mmap(void *where, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	void *memory = __real_mmap(where, bytes, protection, flags, fd, offset);

	if (memory != MAP_FAILED)
		note(memory, bytes, true);
	return memory;
}

int __wrap_munmap(void *memory, size_t bytes)
{
	forget(memory);
	return __real_munmap(memory, bytes);
}

static bool points_into(uint64_t word, const struct gpu_block *block)
{
	return word - (uint64_t)(uintptr_t)block->base <= block->bytes;
}

static bool find(uint64_t word, struct gpu_block *out)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	for (size_t i = 0; i < block_count && !found; i++) {
		found = points_into(word, &blocks[i]);
		if (found)
			*out = blocks[i];
	}
	pthread_mutex_unlock(&lock);
	return found;
}

/* The callers' frames lie between `frame` and the stack's end. */
static bool find_on_stack(uint64_t word, void *frame, struct gpu_block *out)
{
	pthread_attr_t attributes;
	void *stack;
	size_t bytes;

	if (pthread_getattr_np(pthread_self(), &attributes))
		return false;
	pthread_attr_getstack(&attributes, &stack, &bytes);
	pthread_attr_destroy(&attributes);
	*out = (struct gpu_block){frame, (size_t)((char *)stack + bytes - (char *)frame), false};
	return points_into(word, out);
}

bool gpu_block_of(uint64_t word, void *frame, struct gpu_block *out)
{
	return find(word, out) || find_on_stack(word, frame, out);
}
