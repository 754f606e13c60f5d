/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The allocator between the library and libc (linked by --wrap) and below OpenSSL: counts what the calling thread does while it watches,
 * and lets the n-th request fail.
 */
#ifndef KVPOOL_TEST_FAULTY_MEMORY_H
#define KVPOOL_TEST_FAULTY_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Before anything else in main(): takes over OpenSSL's allocator. */
void faulty_memory_init(void);
/* From now on this thread's requests count; the `fail_at`-th fails (0: none). */
void faulty_memory_watch(uint64_t fail_at);
/* Ends it. Returns how many requests there were. */
uint64_t faulty_memory_end(void);
/* Whether the failure has happened. */
bool faulty_memory_failed(void);
/* Allocations of this thread that are not freed, OpenSSL's and mappings left out. */
int64_t faulty_memory_live(void);
/* Mappings of this thread that are not unmapped. */
int64_t faulty_memory_mapped(void);

#endif
