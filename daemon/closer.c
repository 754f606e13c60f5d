/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The closer: a ring of descriptors, of which the worker gets a batch at a time.
 */
#include "closer.h"

#include <errno.h>
#include <stdlib.h>
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
	if (closer->count == closer->capacity) {
		close_one(fd);
		return;
	}
	closer->waiting[(closer->first + closer->count) % closer->capacity] = fd;
	closer->count++;
}

static int take(struct kvd_closer *closer)
{
	int fd = closer->waiting[closer->first];

	closer->first = (closer->first + 1) % closer->capacity;
	closer->count--;
	return fd;
}

static void close_rest(struct kvd_closer *closer)
{
	while (closer->batch_count)
		close_one(closer->batch[--closer->batch_count]);
}

/* On the worker's thread. */
static int close_batch(void *arg, const _Atomic int *cancel)
{
	struct kvd_closer *closer = arg;

	while (closer->batch_count && !*cancel)
		close_one(closer->batch[--closer->batch_count]);
	return 0;
}

/* A job that was cancelled left some. */
static void told(void *arg, int result)
{
	struct kvd_closer *closer = arg;

	(void)result;
	closer->in_flight = false;
	close_rest(closer);
}

static void give_batch(struct kvd_closer *closer, struct kvd_worker *worker)
{
	if (closer->in_flight || !closer->ripe)
		return;
	closer->batch_count = 0;
	while (closer->ripe && closer->batch_count < KVD_CLOSER_BATCH) {
		closer->batch[closer->batch_count++] = take(closer);
		closer->ripe--;
	}
	closer->in_flight = true;
	if (kvd_worker_submit(worker, "close descriptors", close_batch, told, closer))
		told(closer, 0);
}

bool kvd_closer_submit(struct kvd_closer *closer, struct kvd_worker *worker)
{
	bool ripened;

	give_batch(closer, worker);
	ripened = closer->ripe < closer->count;
	closer->ripe = closer->count;
	return ripened;
}

/* Neither the loop nor the worker has anything of it any more. */
void kvd_closer_destroy(struct kvd_closer *closer)
{
	while (closer->count)
		close_one(take(closer));
	free(closer->waiting);
	*closer = (struct kvd_closer){.waiting = NULL};
}
