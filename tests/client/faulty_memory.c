/* SPDX-License-Identifier: Apache-2.0 */
#include "faulty_memory.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/types.h>

#include <openssl/crypto.h>

/* The linker's names: __wrap_x takes calls of x, __real_x is libc's. */
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *memory, size_t bytes);
void *__real_aligned_alloc(size_t alignment, size_t bytes);
void __real_free(void *memory);
void *__real_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __real_munmap(void *at, size_t bytes);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *memory, size_t bytes);
void *__wrap_aligned_alloc(size_t alignment, size_t bytes);
void __wrap_free(void *memory);
void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
int __wrap_munmap(void *at, size_t bytes);

static _Thread_local struct {
	bool watching;
	bool failed;
	uint64_t requests;
	uint64_t fail_at;
	int64_t live;
	int64_t mapped;
} self;

static bool refuse(void)
{
	if (!self.watching || ++self.requests != self.fail_at)
		return false;
	self.failed = true;
	errno = ENOMEM;
	return true;
}

static void *count(void *memory)
{
	self.live += memory != NULL;
	return memory;
}

void *__wrap_malloc(size_t bytes)
{
	return refuse() ? NULL : count(__real_malloc(bytes));
}

void *__wrap_calloc(size_t n, size_t bytes)
{
	return refuse() ? NULL : count(__real_calloc(n, bytes));
}

void *__wrap_realloc(void *memory, size_t bytes)
{
	if (refuse())
		return NULL;
	return memory ? __real_realloc(memory, bytes) : count(__real_realloc(NULL, bytes));
}

void *__wrap_aligned_alloc(size_t alignment, size_t bytes)
{
	return refuse() ? NULL : count(__real_aligned_alloc(alignment, bytes));
}

void __wrap_free(void *memory)
{
	self.live -= memory != NULL;
	__real_free(memory);
}

void *__wrap_mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	void *memory = refuse() ? MAP_FAILED : __real_mmap(at, bytes, protection, flags, fd, offset);

	/* A fixed mapping replaces a part of one that counts already. */
	self.mapped += memory != MAP_FAILED && !(flags & MAP_FIXED);
	return memory;
}

int __wrap_munmap(void *at, size_t bytes)
{
	self.mapped--;
	return __real_munmap(at, bytes);
}

static void *crypto_malloc(size_t bytes, const char *file, int line)
{
	(void)file;
	(void)line;
	return refuse() ? NULL : __real_malloc(bytes);
}

static void *crypto_realloc(void *memory, size_t bytes, const char *file, int line)
{
	(void)file;
	(void)line;
	return refuse() ? NULL : __real_realloc(memory, bytes);
}

static void crypto_free(void *memory, const char *file, int line)
{
	(void)file;
	(void)line;
	__real_free(memory);
}

void faulty_memory_init(void)
{
	if (!CRYPTO_set_mem_functions(crypto_malloc, crypto_realloc, crypto_free))
		abort();
}

void faulty_memory_watch(uint64_t fail_at)
{
	self.requests = 0;
	self.failed = false;
	self.fail_at = fail_at;
	self.watching = true;
}

uint64_t faulty_memory_end(void)
{
	self.watching = false;
	return self.requests;
}

bool faulty_memory_failed(void)
{
	return self.failed;
}

int64_t faulty_memory_live(void)
{
	return self.live;
}

int64_t faulty_memory_mapped(void)
{
	return self.mapped;
}
