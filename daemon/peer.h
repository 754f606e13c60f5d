/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who is at the other end of a socket: credentials from the kernel, and a pidfd where one can be had, so that a recycled pid is
 * never mistaken for the peer.
 */
#ifndef KVPOOL_DAEMON_PEER_H
#define KVPOOL_DAEMON_PEER_H

#include <sys/types.h>

struct kvd_peer {
	pid_t pid; /* 0: in a PID namespace that we can't see */
	uid_t uid;
	gid_t gid;
	int pidfd; /* -1: none (the OFD lock alone then proves its end) */
};

/*
 * SO_PEERCRED, then SO_PEERPIDFD, else pidfd_open() right after accept. Refuses the overflow uid (-EACCES). -ESRCH: the peer is
 * gone already.
 */
int kvd_peer_identify(int socket_fd, struct kvd_peer *out);
/* 1 when the process has ended, 0 while it lives or can't be told. */
int kvd_peer_ended(const struct kvd_peer *peer);
void kvd_peer_close(struct kvd_peer *peer);

#endif
