/* SPDX-License-Identifier: Apache-2.0 */
/* A launch: its limits, then block after block, for half of the seeds from the last to the first. */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SHARED_BYTES 232448 /* what a block of an H100 may ask for */
#define MAX_GRID_YZ 65535
#define SHARED_ALIGNMENT 1024
#define LAUNCH_FAILED 719 /* the driver's number */

static struct simt_machine *machine_of_thread(void)
{
	if (!simt_machine_now)
		simt_machine_now = static_cast<struct simt_machine *>(calloc(1, sizeof(*simt_machine_now)));
	if (!simt_machine_now) {
		perror("simt");
		abort();
	}
	return simt_machine_now;
}

static uint64_t volume(const struct simt_dim *size)
{
	return static_cast<uint64_t>(size->x) * size->y * size->z;
}

static const char *refusal(const struct simt_kernel *kernel, const struct simt_launch *launch)
{
	const uint64_t threads = volume(&launch->block);
	const uint32_t bound = kernel->max_threads ? kernel->max_threads : SIMT_MAX_THREADS;

	if (!threads || threads > SIMT_MAX_THREADS || threads > bound)
		return "more threads than the kernel's launch bound, or none";
	if (threads % SIMT_LANES || launch->block.y != 1 || launch->block.z != 1)
		return "blocks are rows of whole warps here";
	if (!volume(&launch->grid) || launch->grid.x > INT32_MAX || launch->grid.y > MAX_GRID_YZ ||
	    launch->grid.z > MAX_GRID_YZ)
		return "an empty grid, or one past the limits";
	if (volume(&launch->cluster) > 1)
		return "clusters are not modelled";
	return launch->shared_bytes > MAX_SHARED_BYTES ? "more shared memory than a block can have" : nullptr;
}

/* Exact and fresh, so that AddressSanitizer sees its ends; 0xff, so that what nobody wrote is NaN or -1. */
static void run_block(struct simt_machine *m, uint64_t index)
{
	const struct simt_dim *grid = &m->launch->grid;
	void *shared = nullptr;

	m->block.x = static_cast<uint32_t>(index % grid->x);
	m->block.y = static_cast<uint32_t>(index / grid->x % grid->y);
	m->block.z = static_cast<uint32_t>(index / grid->x / grid->y);
	if (posix_memalign(&shared, SHARED_ALIGNMENT, m->launch->shared_bytes + !m->launch->shared_bytes)) {
		perror("simt: shared memory");
		abort();
	}
	m->shared = static_cast<unsigned char *>(shared);
	memset(shared, 0xff, m->launch->shared_bytes);
	simt_run_block(m);
	free(shared);
}

static void run_grid(struct simt_machine *m)
{
	const uint64_t blocks = volume(&m->launch->grid);

	m->thread_count = m->launch->block.x;
	m->warp_count = m->thread_count / SIMT_LANES;
	m->random = m->seed;
	simt_shuffle_schedule(m);
	for (uint64_t i = 0; i < blocks && !m->failed; i++)
		run_block(m, m->seed & 2 ? blocks - 1 - i : i);
}

int simt_launch(const struct simt_kernel *kernel, const struct simt_launch *launch, void **parameters)
{
	struct simt_machine *m = machine_of_thread();
	const char *refused = refusal(kernel, launch);

	m->kernel = kernel;
	m->launch = launch;
	m->parameters = parameters;
	m->failed = false;
	m->current = nullptr;
	if (refused)
		simt_fail("%s", refused);
	else
		run_grid(m);
	return m->failed ? LAUNCH_FAILED : 0;
}

const char *simt_error(void)
{
	return machine_of_thread()->error;
}

void simt_set_seed(uint64_t seed)
{
	machine_of_thread()->seed = seed;
}
