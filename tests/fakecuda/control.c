/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define PATH_VARIABLE "LD_LIBRARY_PATH"
#define MACHINE_VARIABLE "FAKECUDA_MACHINE"

static const char *const functions[] = {
#define KVW_CUDA_FUNCTION(name, version, arguments) #name,
#include "ipc/cuda_driver.def"
#undef KVW_CUDA_FUNCTION
};

static const char *const kinds[] = {
#define FAKE_KIND(name, text) text,
	FAKE_KIND_MAP(FAKE_KIND)
#undef FAKE_KIND
};

static struct fake_machine *machine;
static char machine_path[256];
static pid_t machine_owner;

static void die(const char *what)
{
	perror(what);
	abort();
}

/* The loader reads its path only at the start of a program. */
static void start_with_double(char **argv)
{
	const char *path = getenv(PATH_VARIABLE);
	char *joined;

	if (path && strstr(path, FAKECUDA_DIR))
		return;
	if (asprintf(&joined, "%s%s%s", FAKECUDA_DIR, path ? ":" : "", path ? path : "") < 0 ||
	    setenv(PATH_VARIABLE, joined, 1))
		die("setenv");
	execv("/proc/self/exe", argv);
	die("/proc/self/exe");
}

static void remove_machine(void)
{
	if (getpid() == machine_owner)
		unlink(machine_path);
}

static void make_machine(void)
{
	const char *base = getenv("TMPDIR");
	int fd;

	snprintf(machine_path, sizeof(machine_path), "%s/fakecuda-machine-XXXXXX", base ? base : "/tmp");
	fd = mkostemp(machine_path, O_CLOEXEC);
	if (fd < 0 || close(fd) || setenv(MACHINE_VARIABLE, machine_path, 1))
		die(machine_path);
	machine_owner = getpid();
	atexit(remove_machine);
}

void kvt_cuda_start(char **argv)
{
	if (kvt_cuda_role())
		return;
	start_with_double(argv);
	make_machine();
}

bool kvt_cuda_is_double(void)
{
	return true;
}

struct fake_machine *kvt_cuda_machine(void)
{
	const char *path = getenv(MACHINE_VARIABLE);
	int fd;

	if (machine)
		return machine;
	fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0 || ftruncate(fd, sizeof(*machine)))
		die(path);
	machine = mmap(NULL, sizeof(*machine), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (machine == MAP_FAILED)
		die(path);
	return machine;
}

struct fake_process *kvt_cuda_process(pid_t pid)
{
	struct fake_process *newest = NULL;

	for (unsigned i = 0; i < FAKE_MAX_PROCESSES; i++) {
		struct fake_process *process = &kvt_cuda_machine()->processes[i];

		if (process->pid == pid && (!newest || process->start_time >= newest->start_time))
			newest = process;
	}
	assert_non_null(newest);
	return newest;
}

static unsigned function_index(const char *name)
{
	unsigned i = 0;

	while (i < sizeof(functions) / sizeof(functions[0]) && strcmp(functions[i], name))
		i++;
	assert_true(i < sizeof(functions) / sizeof(functions[0]));
	return i;
}

uint64_t kvt_cuda_calls(pid_t pid, const char *function)
{
	return kvt_cuda_process(pid)->function_calls[function_index(function)];
}

int64_t kvt_cuda_live(pid_t pid, char *text, size_t bytes)
{
	const struct fake_process *process = kvt_cuda_process(pid);
	int64_t total = 0;
	size_t used = 0;

	if (text && bytes)
		text[0] = 0;
	for (unsigned i = 0; i < FAKE_KINDS; i++) {
		int64_t live = process->live[i];

		total += live;
		if (live && text && used < bytes)
			used += (size_t)snprintf(text + used, bytes - used, "%lld x %s; ", (long long)live,
						 kinds[i]);
	}
	return total;
}

void kvt_cuda_fail_in(pid_t pid, const char *function, uint64_t call, unsigned code)
{
	struct fake_process *self = kvt_cuda_process(pid);
	unsigned index = function ? function_index(function) : 0;
	uint64_t before = function ? self->function_calls[index] : self->calls;

	self->fail_call = 0;
	self->fail_code = code;
	self->fail_function = function ? index + 1 : 0;
	self->fail_call = call && code ? before + call : 0;
}

void kvt_cuda_fail(const char *function, uint64_t call, unsigned code)
{
	kvt_cuda_fail_in(getpid(), function, call, code);
}

void kvt_cuda_hang(pid_t pid, const char *function)
{
	kvt_cuda_process(pid)->hang_function = function ? function_index(function) + 1 : 0;
}

unsigned kvt_cuda_hanging(pid_t pid)
{
	return kvt_cuda_process(pid)->hanging;
}
