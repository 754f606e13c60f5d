/* SPDX-License-Identifier: Apache-2.0 */
#include "syscall_count.h"

#include <signal.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <ucontext.h>
#include <unistd.h>

#ifndef PR_SET_SYSCALL_USER_DISPATCH
#define PR_SET_SYSCALL_USER_DISPATCH 59
#define PR_SYS_DISPATCH_ON 1
#endif
#define ALLOW 0
#define BLOCK 1

static _Thread_local volatile char selector = ALLOW;
static _Thread_local volatile bool seen;

#ifdef __x86_64__

static long raw_syscall(const greg_t *registers)
{
	register long r10 __asm__("r10") = registers[REG_R10];
	register long r8 __asm__("r8") = registers[REG_R8];
	register long r9 __asm__("r9") = registers[REG_R9];
	long result;

	__asm__ volatile("syscall"
			 : "=a"(result)
			 : "a"(registers[REG_RAX]), "D"(registers[REG_RDI]), "S"(registers[REG_RSI]),
			   "d"(registers[REG_RDX]), "r"(r10), "r"(r8), "r"(r9)
			 : "rcx", "r11", "memory");
	return result;
}

static void on_sigsys(int number, siginfo_t *info, void *context)
{
	greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;

	(void)number;
	(void)info;
	/* Allowed from here on: the return from this handler is a system call too. */
	selector = ALLOW;
	seen = true;
	registers[REG_RAX] = raw_syscall(registers);
}

static void handle(void)
{
	struct sigaction action = {.sa_sigaction = on_sigsys, .sa_flags = SA_SIGINFO};

	/* Each time: CMocka takes the signal over when a test begins. */
	sigaction(SIGSYS, &action, NULL);
}

bool syscall_count_init(void)
{
	return prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector) == 0;
}

#else

static void handle(void)
{
}

bool syscall_count_init(void)
{
	return false;
}

#endif

void syscall_count_begin(void)
{
	handle();
	seen = false;
	selector = BLOCK;
}

bool syscall_count_end(void)
{
	selector = ALLOW;
	return seen;
}
