/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine that all processes under the driver double share: one file, named by $FAKECUDA_MACHINE and
 * mapped by each of them. It holds who uses how much device memory, and for every process its calls, its
 * live handles and the failure it was told to make. Tests map the same file (control.h) and read it while a
 * process runs and after it has ended. Without the variable a process has a machine of its own.
 */
#ifndef KVPOOL_TESTS_FAKECUDA_MACHINE_H
#define KVPOOL_TESTS_FAKECUDA_MACHINE_H

#include <stdatomic.h>
#include <stdint.h>

#define FAKE_MAX_PROCESSES 64 /* one bit each in fake_allocation.holders */
#define FAKE_MAX_ALLOCATIONS 8192
#define FAKE_MAX_FUNCTIONS 128
#define FAKE_MAX_DEVICES 8

/* What a process can have left over: X(NAME, text) */
#define FAKE_KIND_MAP(X)                                                                                     \
	X(CONTEXT, "retained context")                                                                       \
	X(ALLOCATION, "allocation")                                                                          \
	X(IMPORT, "opened handle")                                                                           \
	X(HANDLE, "memory handle")                                                                           \
	X(RESERVATION, "reserved range")                                                                     \
	X(MAPPING, "mapping")                                                                                \
	X(REGISTRATION, "registered range")                                                                  \
	X(STREAM, "stream")                                                                                  \
	X(EVENT, "event")                                                                                    \
	X(GRAPH, "graph")                                                                                    \
	X(EXEC, "executable graph")                                                                          \
	X(MODULE, "module")                                                                                  \
	X(LIBRARY, "library")

enum fake_kind {
#define FAKE_KIND(name, text) FAKE_KIND_##name,
	FAKE_KIND_MAP(FAKE_KIND)
#undef FAKE_KIND
		FAKE_KINDS,
	/* Handles that belong to a module or library and go with it. */
	FAKE_KIND_FUNCTION = FAKE_KINDS,
	FAKE_KIND_KERNEL,
};

/* One piece of device memory, alive while one living process holds it. */
struct fake_allocation {
	_Atomic uint64_t id; /* 0: a free entry */
	_Atomic uint64_t bytes;
	_Atomic uint32_t device;
	_Atomic uint64_t holders; /* bit i: process i */
};

struct fake_process {
	_Atomic int32_t pid; /* 0: never used */
	_Atomic uint64_t start_time;
	_Atomic uint64_t calls; /* of functions that can fail; the n-th is what fail_call means */
	_Atomic uint64_t function_calls[FAKE_MAX_FUNCTIONS];
	_Atomic int64_t live[FAKE_KINDS];
	/* Asynchronous copies from or to unregistered memory: each of them made the host wait. */
	_Atomic uint64_t blocking_copies;
	_Atomic uint64_t operations; /* done by streams */
	/*
	 * Calls that can block, made by the process's first thread: where that is an event loop, there may
	 * be none.
	 */
	_Atomic uint64_t first_thread_calls;
	/* Calls of this function (index + 1) don't return while it stands here; how many wait now. */
	_Atomic uint32_t hang_function, hanging;
	/*
	 * The call of this number fails; 0: none. With a function: its calls are counted, and 0 means each
	 * of them.
	 */
	_Atomic uint64_t fail_call;
	_Atomic uint32_t fail_function; /* index + 1 */
	_Atomic uint32_t fail_code;
};

struct fake_machine {
	_Atomic uint64_t next_id;
	/* Processes that write on behalf of a killed one; and what they have written, in operations. */
	_Atomic uint32_t late_writers;
	_Atomic uint64_t late_writes;
	struct fake_process processes[FAKE_MAX_PROCESSES];
	struct fake_allocation allocations[FAKE_MAX_ALLOCATIONS];
};

#endif
