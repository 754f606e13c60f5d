/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes map memory of CUDA pools, in a file beside the socket (`<path>.mapped`), so that the next
 * daemon can name them: device memory that somebody maps outlives the daemon that made it, and the driver
 * tells nobody's number. The file is mapped, so that writing a record is no system call of the loop; it goes
 * when a daemon ends and no process of it is left.
 *
 * A process is its number and its start, since numbers come round.
 */
#ifndef KVPOOL_DAEMON_IMPORTERS_H
#define KVPOOL_DAEMON_IMPORTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "ipc/limits.h"

struct kvd_importer {
	uint64_t start_time; /* ticks since boot; written last, 0: unused */
	uint64_t bytes;
	int32_t pid;
	uint32_t pad;
	char pool[KVW_MAX_NAME_BYTES + 1];
};

struct kvd_importers {
	struct kvd_importer *records; /* the file; [KVW_MAX_SESSIONS] */
	char path[128];
	struct kvd_importer *old; /* of earlier daemons, alive when this one began; not changed after that */
	uint32_t old_count;
	bool ours[KVW_MAX_SESSIONS]; /* which records are this daemon's own sessions' */
	uint32_t next_old;           /* where the next look for a dead one's record begins */
	uint32_t unrecorded;         /* sessions that map and have no record: health says so */
	bool ending;                 /* the daemon does: nothing is removed any more */
};

/* In place of a record's number. */
#define KVD_IMPORTER_NONE (-1)       /* there is nothing to remember */
#define KVD_IMPORTER_UNRECORDED (-2) /* there is, and no record could be had */

/* Reads what an earlier daemon left at this socket. Logs what fails; *out then serves all the same, without records. */
int kvd_importers_open(const char *socket_path, struct kvd_importers *out);
/* When the workers have stopped. Records stay for the next daemon where their processes live. */
void kvd_importers_close(struct kvd_importers *importers);

/*
 * The record's number; KVD_IMPORTER_NONE: the process has ended. One of an earlier daemon's is taken over when its process has. UNRECORDED, with
 * a line in the log: all are in use, there is no file, or the process can't be named from here.
 */
int32_t kvd_importers_add(struct kvd_importers *importers, pid_t pid, uint64_t bytes, const char *pool);
/* What kvd_importers_add() gave, once. */
void kvd_importers_remove(struct kvd_importers *importers, int32_t record);

/* What kvd_importers_left() found, to be kept. */
struct kvd_importers_left {
	uint32_t count;
	uint64_t bytes;
	char text[400];
};

/*
 * Of earlier daemons' processes, those that still live: how many, their bytes, and "process 12 (9.1 MiB of
 * pool 'p'), .." in `text`. Any thread; reads /proc of each, so not the loop's.
 */
uint32_t kvd_importers_left(const struct kvd_importers *importers, uint64_t *out_bytes, char *text,
			    size_t capacity);

#endif
