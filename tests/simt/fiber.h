/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: a stack and a saved stack pointer each. A CUDA thread is one. The switch is a few instructions of
 * assembly: swapcontext() would make two system calls each time. Fibers never move between threads of the
 * system.
 */
#ifndef KVPOOL_TEST_SIMT_FIBER_H
#define KVPOOL_TEST_SIMT_FIBER_H

#include <stddef.h>

struct simt_context {
	void *stack_pointer; /* saved while it doesn't run */
	char *stack;         /* lowest byte; NULL: the system's own stack */
	size_t stack_bytes;
	void *fake_stack; /* AddressSanitizer's */
};

/* A context whose stack is mapped lazily, with a guard page below. Aborts when there is no memory. */
void simt_context_open(struct simt_context *context);
void simt_context_close(struct simt_context *context);

/* The next switch to `context` starts `entry`, which never returns. */
void simt_context_start(struct simt_context *context, void (*entry)(void));

/* Saves the running one in `from`, continues `to`. `from` NULL'd fake stack: see simt_switch_last(). */
void simt_switch(struct simt_context *from, struct simt_context *to);

/* The same for a fiber that ends here. */
void simt_switch_last(struct simt_context *from, struct simt_context *to);

/* To be called first in a fiber's entry. */
void simt_switch_arrived(struct simt_context *self);

#endif
