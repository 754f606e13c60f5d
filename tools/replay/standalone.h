/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A kvpoold of one's own: found ($KVPOOLD, beside this program, in the build tree, in libexec or sbin, in
 * $PATH), started with one pool and a socket in a private folder, stopped by TERM. What it logs is kept and
 * shown only when it fails.
 */
#ifndef KVPOOL_TOOLS_REPLAY_STANDALONE_H
#define KVPOOL_TOOLS_REPLAY_STANDALONE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "folder.h"

struct rep_daemon_params {
	uint32_t blocks;
	uint32_t block_tokens;
	const char *planes;
	const char *device;
	const char *share;
	const char *policy;
	const char *event_loop;
	uint32_t timeout_ms; /* per 1 GB of pool, at least once */
	uint64_t pool_bytes; /* about */
};

struct rep_daemon {
	pid_t pid;
	pid_t parent;
	struct rep_folder folder;
	char socket[108];
	char log[96];
};

/* Path of the daemon's program. 0, or -ENOENT. */
int rep_daemon_find(char *out, size_t capacity);
/* 0 or a negative errno, told on standard error with the end of the daemon's log. */
int rep_daemon_start(const struct rep_daemon_params *params, struct rep_daemon *out);
/*
 * Waits for the daemon's word on ready_fd and shows meanwhile, on a terminal, how far its pool is populated. 0;
 * -EPIPE: it has ended; -ETIMEDOUT; -EINTR: the user does not want to wait.
 */
int rep_daemon_wait(int ready_fd, const char *socket, uint32_t timeout_ms);
/* TERM, and its end within timeout_ms. 0; -EIO: it did not end in order, told. Removes the folder. */
int rep_daemon_stop(struct rep_daemon *daemon, uint32_t timeout_ms);

#endif
