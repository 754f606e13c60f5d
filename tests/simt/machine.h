/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine: one block of CUDA threads at a time, each a fiber that runs until it waits. Kept by the
 * system's thread that launches. No containers of the C++ library: sanitizers take their insides for the
 * kernel's doing.
 */
#ifndef KVPOOL_TEST_SIMT_MACHINE_H
#define KVPOOL_TEST_SIMT_MACHINE_H

#include "control.h"
#include "fiber.h"
#include "kernel_table.h"

#include <stdint.h>
#include <string.h>

#define SIMT_LANES 32
#define SIMT_WARPS (SIMT_MAX_THREADS / SIMT_LANES)
#define SIMT_GROUP_THREADS 128
#define SIMT_GROUPS (SIMT_MAX_THREADS / SIMT_GROUP_THREADS)

/* A place in a kernel's source: threads that meet must come from the same. */
struct simt_where {
	const char *file;
	int line;
};

static inline bool simt_same_where(struct simt_where a, struct simt_where b)
{
	return a.line == b.line && !strcmp(a.file, b.file);
}

/* A cp.async on its way: the bytes were read at the issue and land in a wait. */
struct simt_copy {
	unsigned char *to;
	uint64_t group;
	unsigned char bytes[16];
};

struct simt_thread {
	struct simt_context context;
	uint32_t index; /* in the block */
	bool ended;
	struct simt_where waits_at;
	const char *waits_for; /* NULL: it doesn't */
	struct simt_copy *copies;
	uint32_t copy_count, copy_room;
	uint64_t copy_group;      /* not yet committed */
	const uint64_t *waits_on; /* a phase; NULL: none */
	bool unfenced;            /* it wrote to shared memory, which the matrix unit need not see yet */
};

/* What the last lane to arrive computes for all; each lane left a pointer to its own arguments. */
typedef void (*simt_warp_fn)(void *const *lanes);

struct simt_warp {
	uint32_t ready; /* lanes that can run */
	uint32_t arrived;
	struct simt_where where;
	simt_warp_fn operation;
	void *lanes[SIMT_LANES];
};

/* A product of a warpgroup that was issued and not waited for. */
struct simt_group_product {
	uint64_t a, b; /* descriptors */
	uint32_t columns;
	bool b_by_rows;
	bool add;
	float (*widen)(uint16_t code);
};
#define SIMT_GROUP_PRODUCTS 64

/* Four warps that multiply together. */
struct simt_group {
	uint32_t arrived;
	struct simt_where where;
	void (*operation)(struct simt_group *group);
	void *arguments[SIMT_GROUP_THREADS];
	bool begun; /* registers were handed over */
	bool early; /* products read shared memory when issued, not when waited for */
	uint32_t product_count;
	struct simt_group_product products[SIMT_GROUP_PRODUCTS];
	float *result[SIMT_GROUP_THREADS];  /* where the program has them */
	float sum[SIMT_GROUP_THREADS][128]; /* the matrix unit's own */
	float a[64][16], b[256][16];        /* of one product; b by columns */
};

/* A box that was asked for and has not landed. */
struct simt_box {
	unsigned char *to;
	uint64_t *phase;
	struct simt_tensor_map map;
	int64_t column, token, page;
};
#define SIMT_BOXES 64

struct simt_machine {
	struct simt_context scheduler;
	struct simt_thread threads[SIMT_MAX_THREADS];
	struct simt_warp warps[SIMT_WARPS];
	struct simt_group groups[SIMT_GROUPS];
	uint32_t opened; /* threads that have a stack */
	struct simt_thread *current;

	const struct simt_kernel *kernel;
	const struct simt_launch *launch;
	void **parameters;
	uint64_t seed;
	uint32_t thread_count, warp_count;
	struct simt_dim block; /* blockIdx */
	uint32_t ready_warps;
	uint32_t living;

	uint32_t barrier_arrived;
	struct simt_where barrier_where;

	uint32_t unfenced; /* threads */
	struct simt_box boxes[SIMT_BOXES];
	uint32_t box_count;
	unsigned char *shared; /* exactly launch->shared_bytes, fresh for each block */
	uint64_t random;
	uint32_t priority[SIMT_WARPS];

	bool failed;
	char error[512];
};

extern __thread struct simt_machine *simt_machine_now; /* a plain word: no constructor, no wrapper */

/* Describes what went wrong, once a launch; a fiber then leaves by simt_leave(). */
void simt_fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Back to the scheduler: until made ready again, or for good after a failure. */
void simt_leave(void);

void simt_wait(const char *what, struct simt_where where);
void simt_make_ready(struct simt_thread *thread);

/* Whether a box lands now, although threads can run; lands one of those on their way. */
bool simt_box_is_due(struct simt_machine *machine);
void simt_box_land(struct simt_machine *machine);

/* Runs the block whose index is set. */
void simt_run_block(struct simt_machine *machine);

uint32_t simt_pick(struct simt_machine *machine);
void simt_shuffle_schedule(struct simt_machine *machine);
uint64_t simt_random(struct simt_machine *machine);

/* All lanes of the calling thread's warp meet. */
void simt_meet(simt_warp_fn operation, void *arguments, struct simt_where where, const char *what);

#endif
