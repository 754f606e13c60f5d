/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Segments of shared memory that are not pools: memfds without a name, mode 0600, sealed against resizing. No client's descriptor
 * is ever mapped.
 */
#ifndef KVPOOL_DAEMON_SEGMENT_H
#define KVPOOL_DAEMON_SEGMENT_H

#include <stddef.h>
#include <stdint.h>

enum kvd_segment_access {
	KVD_SEGMENT_PRIVATE, /* state: mapped here, never sent */
	KVD_SEGMENT_READ, /* directory: mapped here; F_SEAL_FUTURE_WRITE, and the descriptor to send is read-only */
	KVD_SEGMENT_SHARED, /* channel, timelines: mapped here (populated) and by the client; to be guarded */
	KVD_SEGMENT_ANSWERS, /* as READ, and populated: stored to by the loop */
	KVD_SEGMENT_CLIENT   /* tables: mapped by the client only; here pread */
};

struct kvd_segment {
	int fd;       /* the daemon's own */
	int send_fd;  /* what clients get: == fd, or read-only */
	void *memory; /* NULL for KVD_SEGMENT_CLIENT */
	uint64_t bytes;
};

/* *out is zeroed memory of `bytes`, a multiple of the page size. `name` shows in /proc. Negative errno. */
int kvd_segment_create(const char *name, uint64_t bytes, enum kvd_segment_access access,
		       struct kvd_segment *out);
/*
 * Of KVD_SEGMENT_SHARED, once the client has mapped it: nobody else may map it for writing, and no page of it
 * can be taken away any more; those that were are put back. Before that a load or store of ours may have to
 * wait for a hole that is being punched. Negative errno.
 */
int kvd_segment_guard(const struct kvd_segment *segment);
/* Unmaps and closes; a zeroed or closed segment is a no-op (fd -1). */
void kvd_segment_destroy(struct kvd_segment *segment);

/*
 * All of it, by pread: 0, or -EIO/-ERANGE (also when the client shrank what can't be). It waits for nothing
 * that a client may do to the file, as pwrite(2) does for a fallocate() and a mapped load for a hole that is
 * being punched.
 */
int kvd_segment_read(const struct kvd_segment *segment, uint64_t offset, void *out, size_t length);

#endif
