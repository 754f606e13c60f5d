/* SPDX-License-Identifier: Apache-2.0 */
/* The machine's file: this process's place in it, and the memory that all processes use together. */
#include "fake.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct fake_machine *machine;
static int machine_fd = -1;
static unsigned self_index;
static pthread_once_t once = PTHREAD_ONCE_INIT;

uint64_t fake_start_time(int pid)
{
	unsigned long long start = 0;
	char path[64];
	char line[1024];
	const char *at;
	char state = 0;
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	file = fopen(path, "re");
	if (!file)
		return 0;
	at = fgets(line, sizeof(line), file) ? strrchr(line, ')') : NULL;
	fclose(file);
	/*
	 * Fields 3 and 22; the name before them may hold anything. A process that has ended but was not
	 * waited for is dead.
	 */
	if (!at ||
	    sscanf(at + 1, " %c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %llu",
		   &state, &start) != 2)
		return 0;
	return state == 'Z' || state == 'X' ? 0 : start;
}

static bool alive(const struct fake_process *process)
{
	int pid = process->pid;

	return pid && fake_start_time(pid) == process->start_time;
}

/* Between processes; whoever is killed lets go. Threads of one process are kept apart by fake_lock. */
static void machine_lock(short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_len = 1};

	if (machine_fd >= 0)
		(void)fcntl(machine_fd, F_OFD_SETLKW, &lock);
}

static void map_file(const char *path)
{
	machine_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (machine_fd < 0 || ftruncate(machine_fd, sizeof(*machine))) {
		perror(path);
		abort();
	}
	machine = mmap(NULL, sizeof(*machine), PROT_READ | PROT_WRITE, MAP_SHARED, machine_fd, 0);
}

/*
 * A place that nobody had; when there is none, a dead process's. So a test can read what a dead process
 * left.
 */
static unsigned choose_place(void)
{
	for (unsigned i = 0; i < FAKE_MAX_PROCESSES; i++)
		if (!machine->processes[i].pid)
			return i;
	for (unsigned i = 0; i < FAKE_MAX_PROCESSES; i++)
		if (!alive(&machine->processes[i]))
			return i;
	fprintf(stderr, "fakecuda: more than %d processes\n", FAKE_MAX_PROCESSES);
	abort();
}

static uint32_t function_index(const char *name)
{
	for (unsigned i = 0; name && i < FAKE_FUNCTIONS; i++)
		if (!strcmp(name, fake_function_name((enum fake_function_id)i)))
			return i + 1;
	if (!name)
		return 0;
	fprintf(stderr, "fakecuda: no function '%s'\n", name);
	abort();
}

static void read_failure(struct fake_process *self)
{
	const char *call = getenv("FAKECUDA_FAIL_CALL");
	const char *code = getenv("FAKECUDA_FAIL_CODE");

	self->fail_call = call ? strtoull(call, NULL, 0) : 0;
	self->fail_function = function_index(getenv("FAKECUDA_FAIL_FUNCTION"));
	self->fail_code = code ? (uint32_t)strtoul(code, NULL, 0) : KVW_CUDA_UNKNOWN;
}

static void take_place(void)
{
	struct fake_process *self;

	machine_lock(F_WRLCK);
	self_index = choose_place();
	self = &machine->processes[self_index];
	memset((void *)self, 0, sizeof(*self));
	for (unsigned i = 0; i < FAKE_MAX_ALLOCATIONS; i++)
		machine->allocations[i].holders &= ~(UINT64_C(1) << self_index);
	read_failure(self);
	self->start_time = fake_start_time(getpid());
	self->pid = getpid();
	machine_lock(F_UNLCK);
}

static void start(void)
{
	const char *path = getenv("FAKECUDA_MACHINE");

	if (path)
		map_file(path);
	else
		machine = mmap(NULL, sizeof(*machine), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
			       0);
	if (machine == MAP_FAILED) {
		perror("fakecuda: the machine");
		abort();
	}
	take_place();
}

struct fake_machine *fake_machine(void)
{
	pthread_once(&once, start);
	return machine;
}

struct fake_process *fake_self(void)
{
	return &fake_machine()->processes[self_index];
}

unsigned fake_self_index(void)
{
	fake_machine();
	return self_index;
}

void fake_live_add(enum fake_kind kind, int64_t change)
{
	if (kind < FAKE_KINDS)
		fake_self()->live[kind] += change;
}

static uint64_t living_holders(void)
{
	uint64_t living = 0;

	for (unsigned i = 0; i < FAKE_MAX_PROCESSES; i++)
		if (alive(&machine->processes[i]))
			living |= UINT64_C(1) << i;
	return living;
}

/* Also sweeps what only dead processes held. */
static uint64_t used_bytes(int device, uint64_t living)
{
	uint64_t bytes = 0;

	for (unsigned i = 0; i < FAKE_MAX_ALLOCATIONS; i++) {
		struct fake_allocation *entry = &machine->allocations[i];

		if (!entry->id)
			continue;
		if (!(entry->holders & living))
			entry->id = 0;
		else if (entry->device == (uint32_t)device)
			bytes += entry->bytes;
	}
	return bytes;
}

uint64_t fake_device_used(int device)
{
	uint64_t bytes;

	machine_lock(F_WRLCK);
	bytes = used_bytes(device, living_holders());
	machine_lock(F_UNLCK);
	return bytes;
}

/* The number names the place: lookups don't search. */
static bool enter_allocation(int device, uint64_t bytes, uint64_t *out_id)
{
	for (unsigned i = 0; i < FAKE_MAX_ALLOCATIONS; i++) {
		struct fake_allocation *entry = &machine->allocations[i];

		if (entry->id)
			continue;
		entry->bytes = bytes;
		entry->device = (uint32_t)device;
		entry->holders = UINT64_C(1) << self_index;
		*out_id = ++machine->next_id * FAKE_MAX_ALLOCATIONS + i;
		entry->id = *out_id;
		return true;
	}
	return false;
}

unsigned fake_allocation_add(int device, uint64_t bytes, uint64_t *out_id)
{
	uint64_t used;
	bool entered = false;

	machine_lock(F_WRLCK);
	used = used_bytes(device, living_holders());
	if (used <= fake_settings()->memory_bytes && bytes <= fake_settings()->memory_bytes - used)
		entered = enter_allocation(device, bytes, out_id);
	machine_lock(F_UNLCK);
	return entered ? 0 : KVW_CUDA_OUT_OF_MEMORY;
}

bool fake_allocation_hold(uint64_t id, int *out_device, uint64_t *out_bytes)
{
	struct fake_allocation *entry = &machine->allocations[id % FAKE_MAX_ALLOCATIONS];
	bool found;

	machine_lock(F_WRLCK);
	found = entry->id == id && (entry->holders & living_holders());
	if (found) {
		entry->holders |= UINT64_C(1) << self_index;
		*out_device = (int)entry->device;
		*out_bytes = entry->bytes;
	}
	machine_lock(F_UNLCK);
	return found;
}

void fake_allocation_drop(uint64_t id)
{
	struct fake_allocation *entry = &machine->allocations[id % FAKE_MAX_ALLOCATIONS];

	machine_lock(F_WRLCK);
	if (entry->id == id) {
		entry->holders &= ~(UINT64_C(1) << self_index);
		if (!entry->holders)
			entry->id = 0;
	}
	machine_lock(F_UNLCK);
}
