/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Syscall user dispatch: while a byte of ours says BLOCK, every system call of this thread from outside one
 * range of code becomes SIGSYS. The handler counts, makes the call itself from inside that range and puts
 * the result where the caller expects it. The range holds nothing but that call and the return from the
 * handler, both in a section of their own: the handler needs the byte's state unchanged.
 */
#include "dispatch.h"

#include <errno.h>

#if defined(__x86_64__)

#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#endif
#define DISPATCH_OFF 0ul
#define DISPATCH_ON 1ul
#define ALLOW 0
#define BLOCK 1
#define RESTORER_FLAG 0x04000000ul

/* The kernel's own struct, which glibc hides: we bring the restorer, because it must lie in our range. */
struct kernel_sigaction {
	void (*handler)(int signal_number, siginfo_t *info, void *context);
	unsigned long flags;
	void (*restorer)(void);
	uint64_t mask;
};

/* In dispatch's own code range. args: number, then six arguments. */
long rep_dispatch_raw(const long *args);
void rep_dispatch_restorer(void);
extern const char rep_dispatch_code_begin[] __attribute__((visibility("hidden")));
extern const char rep_dispatch_code_end[] __attribute__((visibility("hidden")));

__asm__(".pushsection .text.rep_dispatch, \"ax\", @progbits\n"
	".globl rep_dispatch_code_begin, rep_dispatch_code_end, rep_dispatch_raw, rep_dispatch_restorer\n"
	".hidden rep_dispatch_code_begin, rep_dispatch_code_end, rep_dispatch_raw, rep_dispatch_restorer\n"
	"rep_dispatch_code_begin:\n"
	".type rep_dispatch_raw, @function\n"
	"rep_dispatch_raw:\n"
	"	mov (%rdi), %rax\n"
	"	mov 16(%rdi), %rsi\n"
	"	mov 24(%rdi), %rdx\n"
	"	mov 32(%rdi), %r10\n"
	"	mov 40(%rdi), %r8\n"
	"	mov 48(%rdi), %r9\n"
	"	mov 8(%rdi), %rdi\n"
	"	syscall\n"
	"	ret\n"
	".size rep_dispatch_raw, . - rep_dispatch_raw\n"
	".type rep_dispatch_restorer, @function\n"
	"rep_dispatch_restorer:\n"
	"	mov $15, %rax\n" /* rt_sigreturn */
	"	syscall\n"
	".size rep_dispatch_restorer, . - rep_dispatch_restorer\n"
	"rep_dispatch_code_end:\n"
	".popsection\n");

/* Read by the kernel at every call of this thread. */
static volatile char selector = ALLOW;
static volatile uint64_t count;

static void on_call(int signal_number, siginfo_t *info, void *opaque)
{
	ucontext_t *context = opaque;
	greg_t *regs = context->uc_mcontext.gregs;
	long args[7] = {info->si_syscall,    (long)regs[REG_RDI], (long)regs[REG_RSI], (long)regs[REG_RDX],
			(long)regs[REG_R10], (long)regs[REG_R8],  (long)regs[REG_R9]};

	(void)signal_number;
	count++;
	regs[REG_RAX] = rep_dispatch_raw(args);
}

static int set_dispatch(unsigned long mode)
{
	uintptr_t begin = (uintptr_t)rep_dispatch_code_begin;
	uintptr_t end = (uintptr_t)rep_dispatch_code_end;

	if (mode == DISPATCH_OFF)
		begin = end = 0;
	/*
	 * One past the syscall instruction counts as its address, so the byte behind the range belongs to
	 * it.
	 */
	return prctl(PR_SET_SYSCALL_USER_DISPATCH, mode, begin, end - begin + (mode == DISPATCH_ON),
		     mode == DISPATCH_ON ? &selector : NULL)
		       ? -errno
		       : 0;
}

bool rep_dispatch_works(void)
{
	selector = ALLOW;
	if (set_dispatch(DISPATCH_ON))
		return false;
	set_dispatch(DISPATCH_OFF);
	return true;
}

int rep_dispatch_init(void)
{
	struct kernel_sigaction action = {.handler = on_call,
					  .flags = SA_SIGINFO | SA_NODEFER | RESTORER_FLAG,
					  .restorer = rep_dispatch_restorer};

	if (syscall(SYS_rt_sigaction, SIGSYS, &action, NULL, sizeof(action.mask)))
		return -errno;
	selector = ALLOW;
	return set_dispatch(DISPATCH_ON);
}

void rep_dispatch_switch(bool counting)
{
	selector = counting ? BLOCK : ALLOW;
}

void rep_dispatch_reset(void)
{
	count = 0;
}

uint64_t rep_dispatch_count(void)
{
	return count;
}

#else

bool rep_dispatch_works(void)
{
	return false;
}

int rep_dispatch_init(void)
{
	return -ENOTSUP;
}

void rep_dispatch_switch(bool counting)
{
	(void)counting;
}

void rep_dispatch_reset(void)
{
}

uint64_t rep_dispatch_count(void)
{
	return 0;
}

#endif
