/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The closer: a stack of descriptors, of which the worker gets a batch at a time.
 */
#include "closer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* More messages than a socket's buffer holds. */
#define MAX_UNREAD_MESSAGES 1024u

int kvd_closer_init(struct kvd_closer *closer, uint32_t capacity)
{
	*closer = (struct kvd_closer){.waiting = malloc(capacity * sizeof(*closer->waiting))};
	if (!closer->waiting)
		return -ENOMEM;
	closer->capacity = capacity;
	return 0;
}

/* What is no socket says so at the first call. */
static void close_one(int fd)
{
	uint32_t i;
	char byte;

	shutdown(fd, SHUT_RD);
	for (i = 0; i < MAX_UNREAD_MESSAGES; i++) {
		if (recv(fd, &byte, sizeof(byte), MSG_DONTWAIT) <= 0)
			break;
	}
	close(fd);
}

void kvd_closer_add(struct kvd_closer *closer, int fd)
{
	if (fd < 0)
		return;
	if (closer->count < closer->capacity)
		closer->waiting[closer->count++] = fd;
	else
		close_one(fd);
}

static int close_batch(void *arg, const _Atomic int *cancel)
{
	struct kvd_closer *closer = arg;

	(void)cancel;
	while (closer->batch_count)
		close_one(closer->batch[--closer->batch_count]);
	return 0;
}

/* A job that was cancelled left its batch. */
static void told(void *arg, int result)
{
	struct kvd_closer *closer = arg;

	closer->in_flight = false;
	if (result)
		close_batch(closer, NULL);
}

void kvd_closer_submit(struct kvd_closer *closer, struct kvd_worker *worker)
{
	uint32_t count = closer->count < KVD_CLOSER_BATCH ? closer->count : KVD_CLOSER_BATCH;

	if (closer->in_flight || !count)
		return;
	memcpy(closer->batch, closer->waiting + closer->count - count, count * sizeof(*closer->batch));
	closer->batch_count = count;
	if (kvd_worker_submit(worker, "close descriptors", close_batch, told, closer))
		return;
	closer->in_flight = true;
	closer->count -= count;
}

void kvd_closer_destroy(struct kvd_closer *closer)
{
	while (closer->count)
		close_one(closer->waiting[--closer->count]);
	free(closer->waiting);
	*closer = (struct kvd_closer){.waiting = NULL};
}
