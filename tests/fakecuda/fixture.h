/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What tests of the driver and its double start from: the driver open, device 0's context current, one
 * stream that blocks with no other.
 */
#ifndef KVPOOL_TESTS_FAKECUDA_FIXTURE_H
#define KVPOOL_TESTS_FAKECUDA_FIXTURE_H

#include "control.h"
#include "ipc/cuda_driver.h"
#include "support.h"

extern struct kvw_cuda *cuda;
extern struct kvw_cuda_error cuda_error;
extern struct kvw_cuda_context *context;
extern struct kvw_cuda_stream *stream;

/*
 * As setup and teardown of a group or a test, and plain for a role's process. The teardown demands that
 * nothing is left.
 */
int fixture_setup(void **state);
int fixture_teardown(void **state);

/* The call succeeds, or the test fails with the driver's sentence. */
#define OK(name, ...)                                                                                        \
	fixture_check(kvw_cuda_check(cuda, &cuda_error, cuda->name(__VA_ARGS__), #name), __FILE__, __LINE__)
/* The call answers this code. */
#define ANSWERS(code, name, ...) assert_int_equal(cuda->name(__VA_ARGS__), code)
void fixture_check(int ret, const char *file, int line);

/* Words of device memory, through the stream and a wait for it. */
void fill_words(uint64_t pointer, uint32_t value, size_t count);
void read_words(uint64_t pointer, uint32_t *out, size_t count);
/* How many of the words are not `value`. */
size_t count_others(uint64_t pointer, uint32_t value, size_t count);

/* One page of this process, registered. */
void *make_registered_page(uint64_t *out_pointer);
void drop_registered_page(void *page);

#endif
