/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A double of libcuda.so.1 for machines without a GPU: what its files share.
 *
 * Device memory is memfds, mapped at addresses that differ between processes; streams are queues that one
 * thread runs, late, and in a random order between them; misuse is answered with the driver's codes. One
 * lock guards everything; it is held from fake_begin() to fake_end() and dropped while an operation runs.
 * Handles are numbers that are never used twice, so a freed one is recognised. Memory of the double itself
 * is not given back: its thread may outlive main().
 *
 * Environment (read once, at the first call): FAKECUDA_MACHINE         file that processes share (machine.h)
 * FAKECUDA_DEVICES         number of devices, 2 FAKECUDA_MEMORY_MIB      memory of each device, 4096
 * FAKECUDA_ATTRIBUTES      "102=0,103=0": device attributes that differ FAKECUDA_VERSION         of the
 * driver, 12080 FAKECUDA_STUB            1: every call answers 34, as the toolkit's stub FAKECUDA_FAIL_CALL
 * n: the n-th call fails; with FAKECUDA_FAIL_FUNCTION the n-th of it, 0: each; FAKECUDA_FAIL_CODE: with
 * what, 999 FAKECUDA_DELAY_US        an operation begins no sooner than this after it was queued, unless the
 * host waits; 300 FAKECUDA_PROTECT         1: the host can't touch device memory but while an operation runs
 * FAKECUDA_KERNELS         library of kernels built for the CPU (tests/simt/kernel_table.h) FAKECUDA_LATE_MS
 * how long the device goes on writing for a client that was killed; 0: not at all FAKECUDA_REPORT
 * 1: name on stderr, at exit, what was left over KVP_SEED                 of the order between streams
 */
#ifndef KVPOOL_TESTS_FAKECUDA_FAKE_H
#define KVPOOL_TESTS_FAKECUDA_FAKE_H

#include "ipc/cuda_driver.h"
#include "machine.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define FAKE_GRANULARITY (2u << 20)
/* Codes of the driver that kvpool's own list has no use for. */
#define FAKE_ILLEGAL_STATE 401u
#define FAKE_INVALID_CLUSTER_SIZE 912u

#define KVW_CUDA_FUNCTION(name, version, arguments) unsigned fake_##name arguments;
#include "ipc/cuda_driver.def"
#undef KVW_CUDA_FUNCTION

enum fake_function_id {
#define KVW_CUDA_FUNCTION(name, version, arguments) FAKE_##name,
#include "ipc/cuda_driver.def"
#undef KVW_CUDA_FUNCTION
	FAKE_FUNCTIONS
};

/*
 * Defines an entry: what stands behind it runs with the lock held, when nothing was in the way (begin.c).
 * `parameters` and `arguments`: the same names with and without their types.
 */
#define FAKE_ENTRY(name, parameters, arguments)                                                              \
	static unsigned do_##name parameters;                                                                \
	unsigned fake_##name parameters                                                                      \
	{                                                                                                    \
		struct fake_call call;                                                                       \
		unsigned refused = fake_begin(&call, FAKE_##name);                                           \
                                                                                                             \
		return refused ? refused : fake_end(&call, do_##name arguments);                             \
	}                                                                                                    \
	static unsigned do_##name parameters

/* begin.c */
extern pthread_mutex_t fake_lock;
extern pthread_cond_t fake_changed;

struct fake_call {
	unsigned answer; /* instead of what the entry returns, where it is not 0 */
};
unsigned fake_begin(struct fake_call *call, enum fake_function_id function);
unsigned fake_end(struct fake_call *call, unsigned result);
const char *fake_function_name(enum fake_function_id function);

/* settings.c */
struct fake_settings {
	int devices;
	int version;
	uint64_t memory_bytes;
	uint64_t delay_ns;
	uint64_t late_ms;
	uint64_t seed;
	bool stub, protect, report, seed_given;
	const char *attributes;
	const char *kernels;
};
const struct fake_settings *fake_settings(void);
uint64_t fake_now_ns(void);

/* machine.c */
struct fake_process *fake_self(void);
struct fake_machine *fake_machine(void);
/* The process's number, whose bit it is among the holders. */
unsigned fake_self_index(void);
uint64_t fake_start_time(int pid); /* 0: no such process */
void fake_live_add(enum fake_kind kind, int64_t change);
uint64_t fake_device_used(int device);
/* 2 when the device has too little left. */
unsigned fake_allocation_add(int device, uint64_t bytes, uint64_t *out_id);
/* False when no living process holds it any more, or it never was. */
bool fake_allocation_hold(uint64_t id, int *out_device, uint64_t *out_bytes);
void fake_allocation_drop(uint64_t id);

/* object.c: handles. */
void *fake_object_add(enum fake_kind kind, void *body);
void *fake_object_get(enum fake_kind kind, const void *handle); /* NULL: freed, foreign, of another kind */
void fake_object_remove(enum fake_kind kind, const void *handle);

/* context.c */
struct fake_context {
	int device;
	uint64_t retained;
	unsigned sticky; /* the code that everything answers since a kernel failed */
};
struct fake_context *fake_context_current(void);
struct fake_context *fake_context_of(int device);
void *fake_context_handle(const struct fake_context *context);

/* physical.c: memory itself, apart from addresses. */
struct fake_physical {
	uint64_t id;
	uint64_t bytes;
	int fd;
	int device;
	unsigned references; /* handles and ranges of this process */
	struct fake_physical *next;
};
unsigned fake_physical_create(int device, uint64_t bytes, struct fake_physical **out);
/*
 * Of a descriptor that another process's double made; takes it over on success. 400 when it is not one, or
 * is dead.
 */
unsigned fake_physical_adopt(int fd, struct fake_physical **out);
void fake_physical_name(uint64_t id, char *out, size_t bytes);
void fake_physical_drop(struct fake_physical *physical);
/* What was there is overwritten, where pages are: a reader that goes on after a free sees it. */
void fake_physical_poison(struct fake_physical *physical);

/* range.c: addresses. */
struct fake_range {
	enum fake_kind kind; /* ALLOCATION, IMPORT, RESERVATION, MAPPING or REGISTRATION */
	uint64_t base, bytes;
	struct fake_physical *physical; /* none: a reservation or a registration */
	uint64_t offset;                /* in the physical memory */
	unsigned access;                /* KVW_CUDA_ACCESS_* */
	int device;
	unsigned references; /* an import that was opened more than once */
	struct fake_range *next;
};
struct fake_range *fake_range_add(enum fake_kind kind, uint64_t base, uint64_t bytes);
void fake_range_remove(struct fake_range *range);
struct fake_range *fake_range_find(enum fake_kind kind, uint64_t address);
struct fake_range *fake_range_first(void);
struct fake_range *fake_range_at(uint64_t address); /* what can be read there: no reservation */
/* An address of which no other process has the same; 0 when there is none. PROT_NONE. */
uint64_t fake_range_place(uint64_t bytes, uint64_t alignment);
/* Maps the range's memory there, with the access it has. */
bool fake_range_map(const struct fake_range *range);
/* Gives back address space; and what it holds. */
void fake_range_unmap(struct fake_range *range);
/* All of it is device memory, or registered, and mapped with this access: 0, else 1. */
unsigned fake_range_check(uint64_t address, uint64_t bytes);
bool fake_range_writable(uint64_t address, uint64_t bytes);
/* The host's view of a device pointer: itself, but for a registered range. */
bool fake_host_registered(const void *memory, uint64_t bytes);
void fake_range_unlock_all(bool unlocked);

/* stream.c, executor.c */
enum fake_op_kind {
	FAKE_OP_COPY,
	FAKE_OP_SET,
	FAKE_OP_WRITE_VALUE,
	FAKE_OP_WAIT_VALUE,
	FAKE_OP_RECORD,
	FAKE_OP_WAIT_EVENT,
	FAKE_OP_HOST,
	FAKE_OP_LAUNCH,
	FAKE_OP_NOTHING,
};

struct fake_launch_op;

struct fake_op {
	struct fake_op *next;
	enum fake_op_kind kind;
	uint64_t sequence; /* of queueing, over all streams */
	uint64_t not_before_ns;
	uint32_t late_slot; /* index + 1 in the late writer's table */
	/* Device memory that is written. */
	uint64_t to, bytes;
	union {
		struct {
			uint64_t from;
		} copy;
		struct {
			uint32_t value, width;
		} set;
		struct {
			uint64_t value;
			uint32_t flags, width;
		} word;
		struct {
			struct fake_event *event;
			uint64_t generation;
		} event;
		struct {
			void (*function)(void *);
			void *argument;
		} host;
		struct fake_launch_op *launch;
	} u;
};

struct fake_stream {
	void *handle;
	struct fake_context *context;
	unsigned flags;
	bool legacy;
	bool busy; /* its head runs now */
	struct fake_op *head, *tail;
	struct fake_graph *capture; /* being captured into */
	bool capture_origin;
	/* Operations captured on this stream, and how many of them its capture's origin has joined. */
	uint64_t captured, joined;
	struct fake_stream *next;
};

/* NULL: no such stream, or one of another context than the current. */
struct fake_stream *fake_stream_get(struct kvw_cuda_stream *handle);
struct fake_stream *fake_stream_first(void);
/* Queues a copy of `op`, or captures it. */
unsigned fake_stream_push(struct fake_stream *stream, const struct fake_op *op);
unsigned fake_stream_queue(struct fake_stream *stream, const struct fake_op *op);
void fake_op_free(struct fake_op *op);
void fake_op_free_all(struct fake_op **head);
void fake_op_append(struct fake_op **head, struct fake_op **tail, const struct fake_op *op);
bool fake_stream_idle(const struct fake_stream *stream);
/* What `idle` asks becomes true, or the context is lost. Drops the lock while it waits. */
unsigned fake_wait(struct fake_context *context, bool (*idle)(void *), void *arg);
/* All work of this process, or of one context. */
unsigned fake_wait_all(struct fake_context *context);
void fake_executor_wake(void);
bool fake_in_host_function(void);
void fake_context_lose(struct fake_context *context, unsigned code);

/* op.c: what the operations do, without the lock. 0, or the code that loses the context. */
bool fake_op_ready(const struct fake_op *op);
unsigned fake_op_run(const struct fake_op *op);

/* event.c */
struct fake_event_state {
	_Atomic uint64_t recorded, done, done_ns;
};
struct fake_event {
	void *handle;
	unsigned flags;
	unsigned references;
	struct fake_event_state *state; /* in a memfd when other processes may wait for it */
	int fd;
	struct fake_graph *capture;
	struct fake_stream *capture_stream;
	uint64_t capture_position;
};
void fake_event_ref(struct fake_event *event);
void fake_event_unref(struct fake_event *event);

/* capture.c, graph.c */
struct fake_graph {
	void *handle;
	struct fake_op *head, *tail;
	unsigned mode;
	uint64_t id;
	pthread_t thread;
	bool active;
	bool invalid;
	struct fake_graph *next_capture;
	struct fake_graph *next; /* of all there ever were */
};
/* 900 when a capture forbids this call to this thread; the capture is then spoiled. */
unsigned fake_capture_check_unsafe(void);
unsigned fake_capture_spoil(struct fake_graph *graph, unsigned result);
unsigned fake_capture_append(struct fake_graph *graph, const struct fake_op *op);
/* 906 when the legacy stream would wait for a captured one. */
unsigned fake_capture_check_legacy(const struct fake_context *context);

/* launch.c */
struct fake_launch_op *fake_launch_copy(const struct fake_launch_op *launch);
void fake_launch_free(struct fake_launch_op *launch);
unsigned fake_launch_run(const struct fake_launch_op *launch);

/* module.c */
void *fake_kernels(void); /* the library of kernels; NULL after a message */
struct simt_kernel;
struct fake_function {
	void *handle;
	const struct simt_kernel *kernel;
	uint64_t max_dynamic_shared;
	struct fake_function *next;
};

/* late.c: the device goes on after its client's death. */
void fake_late_start(void);
void fake_late_memory(const struct fake_physical *physical);
void fake_late_forget(const struct fake_physical *physical);
uint32_t fake_late_begin(uint64_t address, uint64_t bytes);
void fake_late_end(uint32_t slot);

/* attributes.c */
int fake_attribute(unsigned attribute, int device);

#endif
