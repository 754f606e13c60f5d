/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Populating a pool: the worker makes its memory present, and the loop hears of it.
 *
 * Device memory that engines of an earlier daemon map is awaited: no new daemon can take it from them. The wait is the loop's, which has the
 * worker try again now and then; for its length the worker is free for the other pools' calls. Each try ends with a look at who is left, so that
 * health and the log can name them without one.
 */
#include "served_pool.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>

#include "log.h"
#include "machine.h"
#include "turn.h"

#define REPORT_EVERY_US 2000000u
/* A try may make a context anew, which takes a driver tenths of a second. */
#define TRY_EVERY_US 250000u

/* Only the buckets are not there yet, and a kernel that can't do it leaves them to their first use. */
static int populate_directory(const struct kvd_segment *directory)
{
	if (!madvise(directory->memory, directory->bytes, MADV_POPULATE_WRITE) || errno == EINVAL)
		return 0;
	return errno == EFAULT ? -ENOMEM : -errno;
}

/* On the worker's thread. When nobody is left the last may have let go after the try: one more is to come. */
static void look_who_is_left(struct kvd_served_pool *pool)
{
	struct kvd_importers_left *found = &pool->room.found;

	found->count = kvd_importers_left(pool->importers, &found->bytes, found->text, sizeof(found->text));
	pool->room.last = !found->count;
}

/* On the worker's thread: makes pages present and reports progress, writes nothing. */
static int populate(void *arg, const _Atomic int *cancel)
{
	struct kvd_served_pool *pool = arg;
	int ret = populate_directory(&pool->directory);

	pool->room.again = false;
	if (ret)
		return ret;
	ret = pool->device->populate(pool->memory, &pool->populated_bytes, cancel);
	if (ret != -ENOMEM || !kvd_pool_config_is_cuda(pool->config) || pool->room.last)
		return ret;
	pool->room.again = true;
	look_who_is_left(pool);
	return ret;
}

static void await_room(struct kvd_served_pool *pool)
{
	const struct kvd_importers_left *left = &pool->room.left;
	uint64_t now_us = kvd_now_us();
	char total[32];

	pool->room.left = pool->room.found;
	pool->room.next_try_us = now_us + TRY_EVERY_US;
	if (!left->count || now_us < pool->room.next_line_us)
		return;
	pool->room.next_line_us = now_us + REPORT_EVERY_US;
	kvd_format_bytes(left->bytes, total, sizeof(total));
	kvd_log_warning("pool '%s': waits for room on device '%s': %" PRIu32 " process%s of an earlier "
			"daemon may still map %s: %s; they let go when they are told or end",
			pool->config->name, pool->config->device, left->count, left->count == 1 ? "" : "es",
			total, left->text);
}

static void populated(void *arg, int result)
{
	struct kvd_served_pool *pool = arg;

	if (result == -ENOMEM && pool->room.again) {
		await_room(pool);
		return;
	}
	pool->room.left.count = 0;
	pool->failed = result;
	pool->ready = !result;
	if (result == -ECANCELED)
		return;
	if (result && kvd_pool_config_is_cuda(pool->config))
		kvd_log_warning("pool '%s' is switched off: %s", pool->config->name,
				kvd_served_pool_fault(pool));
	else if (result)
		kvd_log_error("pool '%s': its %" PRIu64 " bytes could not be made present: %s; make 'blocks' "
			      "smaller, or free memory",
			      pool->config->name, pool->config->geometry.bytes, strerror(-result));
	else
		kvd_log_info("pool '%s' is ready: %" PRIu32 " blocks of %" PRIu64 " bytes on %s%s",
			     pool->config->name, pool->config->data_blocks,
			     pool->config->geometry.record_bytes, pool->device->backing(pool->memory),
			     kvd_pool_config_is_cuda(pool->config) ? "" : " pages");
}

int kvd_served_pool_populate(struct kvd_served_pool *pool, struct kvd_worker *worker)
{
	pool->report_us = kvd_now_us();
	pool->progress_us = pool->report_us;
	return kvd_worker_submit(worker, "populate a pool", populate, populated, pool);
}

void kvd_served_pool_try_again(struct kvd_served_pool *pool, struct kvd_worker *worker, uint64_t now_us)
{
	if (!pool->room.next_try_us || now_us < pool->room.next_try_us)
		return;
	/* A worker whose queue is full is asked at the next poll. */
	if (!kvd_served_pool_populate(pool, worker))
		pool->room.next_try_us = 0;
}

void kvd_served_pool_report(struct kvd_served_pool *pool, uint64_t now_us)
{
	uint64_t done = atomic_load_explicit(&pool->populated_bytes, memory_order_relaxed);

	if (pool->ready || pool->failed || pool->room.left.count)
		return;
	if (done != pool->reported_bytes)
		pool->progress_us = now_us;
	if (now_us - pool->report_us < REPORT_EVERY_US)
		return;
	pool->report_us = now_us;
	pool->reported_bytes = done;
	kvd_log_info("pool '%s': %" PRIu64 " of %" PRIu64 " MiB populated", pool->config->name, done >> 20,
		     pool->config->geometry.bytes >> 20);
}
