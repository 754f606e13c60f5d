/* SPDX-License-Identifier: Apache-2.0 */
#include "fiber.h"

#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#ifdef SIMT_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#define GUARD_BYTES 4096
#define STACK_BYTES (256 * 1024)

/* simt_swap(void **save, void *load): pushes what a callee must keep, exchanges the stack pointer, pops. */
extern "C" void simt_swap(void **save, void *load) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
#define SAVED_WORDS 6
__asm__(".text\n"
	".p2align 4\n"
	".hidden simt_swap\n"
	".globl simt_swap\n"
	".type simt_swap, @function\n"
	"simt_swap:\n"
	"	pushq %rbp\n"
	"	pushq %rbx\n"
	"	pushq %r12\n"
	"	pushq %r13\n"
	"	pushq %r14\n"
	"	pushq %r15\n"
	"	movq %rsp, (%rdi)\n"
	"	movq %rsi, %rsp\n"
	"	popq %r15\n"
	"	popq %r14\n"
	"	popq %r13\n"
	"	popq %r12\n"
	"	popq %rbx\n"
	"	popq %rbp\n"
	"	ret\n"
	".size simt_swap, .-simt_swap\n");

/*
 * Six registers, the entry as return address, and one word more, so that the entry finds the stack as after
 * a call.
 */
static void *first_frame(char *top, void (*entry)(void))
{
	void **frame = reinterpret_cast<void **>(top) - (SAVED_WORDS + 2);

	memset(frame, 0, (SAVED_WORDS + 2) * sizeof(*frame));
	frame[SAVED_WORDS] = reinterpret_cast<void *>(entry);
	return frame;
}
#elif defined(__aarch64__)
#define SAVED_WORDS 20 /* x19-x28, x29, x30, d8-d15 */
__asm__(".text\n"
	".p2align 4\n"
	".hidden simt_swap\n"
	".globl simt_swap\n"
	".type simt_swap, %function\n"
	"simt_swap:\n"
	"	sub sp, sp, #160\n"
	"	stp x19, x20, [sp, #0]\n"
	"	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n"
	"	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n"
	"	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n"
	"	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n"
	"	stp d14, d15, [sp, #144]\n"
	"	mov x9, sp\n"
	"	str x9, [x0]\n"
	"	mov sp, x1\n"
	"	ldp x19, x20, [sp, #0]\n"
	"	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n"
	"	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n"
	"	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n"
	"	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n"
	"	ldp d14, d15, [sp, #144]\n"
	"	add sp, sp, #160\n"
	"	ret\n"
	".size simt_swap, .-simt_swap\n");

/* x30, the eleventh pair's second word, is where ret goes. */
static void *first_frame(char *top, void (*entry)(void))
{
	void **frame = reinterpret_cast<void **>(top) - SAVED_WORDS;

	memset(frame, 0, SAVED_WORDS * sizeof(*frame));
	frame[11] = reinterpret_cast<void *>(entry);
	return frame;
}
#else
#error "no fiber switch for this processor"
#endif

void simt_context_open(struct simt_context *context)
{
	char *map = static_cast<char *>(mmap(nullptr, GUARD_BYTES + STACK_BYTES, PROT_READ | PROT_WRITE,
					     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));

	if (map == MAP_FAILED || mprotect(map, GUARD_BYTES, PROT_NONE)) {
		perror("simt: a thread's stack");
		abort();
	}
	context->stack = map + GUARD_BYTES;
	context->stack_bytes = STACK_BYTES;
	context->fake_stack = nullptr;
}

void simt_context_close(struct simt_context *context)
{
	munmap(context->stack - GUARD_BYTES, GUARD_BYTES + STACK_BYTES);
}

void simt_context_start(struct simt_context *context, void (*entry)(void))
{
#ifdef SIMT_ASAN
	/* A fiber dropped in mid-run leaves its frames' redzones behind. */
	__asan_unpoison_memory_region(context->stack, context->stack_bytes);
#endif
	context->stack_pointer = first_frame(context->stack + context->stack_bytes, entry);
	context->fake_stack = nullptr;
}

#ifdef SIMT_ASAN
/* AddressSanitizer must know each stack that is switched to; the system's own is asked for once. */
static void announce(void **save, struct simt_context *to)
{
	if (!to->stack) {
		pthread_attr_t attributes;
		void *stack;

		pthread_getattr_np(pthread_self(), &attributes);
		pthread_attr_getstack(&attributes, &stack, &to->stack_bytes);
		pthread_attr_destroy(&attributes);
		to->stack = static_cast<char *>(stack);
	}
	__sanitizer_start_switch_fiber(save, to->stack, to->stack_bytes);
}

void simt_switch_arrived(struct simt_context *self)
{
	__sanitizer_finish_switch_fiber(self->fake_stack, nullptr, nullptr);
}
#else
static void announce(void **save, struct simt_context *to)
{
	(void)save;
	(void)to;
}

void simt_switch_arrived(struct simt_context *self)
{
	(void)self;
}
#endif

void simt_switch(struct simt_context *from, struct simt_context *to)
{
	announce(&from->fake_stack, to);
	simt_swap(&from->stack_pointer, to->stack_pointer);
	simt_switch_arrived(from);
}

void simt_switch_last(struct simt_context *from, struct simt_context *to)
{
	announce(nullptr, to);
	simt_swap(&from->stack_pointer, to->stack_pointer);
	abort();
}
