/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The listening socket at a path, and its lock: `<path>.lock` is locked while a daemon serves the path, so
 * that two that start at once cannot both remove the other's socket. Both files go at a clean end.
 */
#ifndef KVPOOL_DAEMON_LISTENER_H
#define KVPOOL_DAEMON_LISTENER_H

#include "config.h"

struct kvd_listener {
	int fd;
	int lock_fd;
	char path[108];
};

/* Logs what fails. A socket file that nobody answers on is replaced; -EADDRINUSE when somebody does. */
int kvd_listener_open(const struct kvd_config *config, struct kvd_listener *out);
void kvd_listener_close(struct kvd_listener *listener);

#endif
