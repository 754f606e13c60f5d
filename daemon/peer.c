/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who connected. SO_PEERPIDFD (Linux 6.5) names the process that connected, whatever its pid is used for now. pidfd_open() could name
 * another one when the peer ended and its pid came round: a peer that was still connected afterwards had not ended, unless
 * a child keeps its socket; the client's nonce with SCM_CREDENTIALS closes that rest.
 */
#include "peer.h"

#include "log.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

#define DEFAULT_OVERFLOW_UID 65534u

static bool read_overflow_uid(uid_t *out)
{
	FILE *file = fopen("/proc/sys/kernel/overflowuid", "re");
	bool read;

	if (!file)
		return false;
	read = fscanf(file, "%u", out) == 1;
	fclose(file);
	return read;
}

/*
 * Whom the kernel shows when a uid has no place in our user namespace: somebody, so nobody in particular.
 * Read once: it is three system calls a connection, and needs a descriptor when there may be none.
 */
static uid_t overflow_uid(void)
{
	static bool known;
	static uid_t uid = DEFAULT_OVERFLOW_UID;

	if (!known)
		known = read_overflow_uid(&uid);
	return uid;
}

static bool has_event(int fd, short events)
{
	struct pollfd look = {.fd = fd, .events = events};

	return poll(&look, 1, 0) == 1;
}

/* -ENOPROTOOPT: this kernel can't. A peer that was reaped is EINVAL before Linux 6.16, ESRCH or a pidfd of the dead later. */
static int peer_pidfd(int socket_fd, int *out)
{
	socklen_t length = sizeof(*out);
	int pidfd;

	if (!getsockopt(socket_fd, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length)) {
		*out = pidfd;
		return 0;
	}
	if (errno == EINVAL || errno == ESRCH)
		return -ESRCH;
	if (errno == ENODATA)
		return -ENOPROTOOPT;
	return -errno;
}

/* No pidfd at all (a pid that we can't see, an old kernel) is no error: *out stays -1. */
static int open_pidfd(int socket_fd, pid_t pid, int *out)
{
	int pidfd;

	if (pid <= 0)
		return 0;
	pidfd = (int)syscall(SYS_pidfd_open, pid, 0u);
	if (pidfd < 0)
		return errno == ENOSYS || errno == EPERM ? 0 : -errno;
	if (has_event(socket_fd, POLLRDHUP)) {
		close(pidfd);
		return -ESRCH;
	}
	*out = pidfd;
	return 0;
}

static int find_pidfd(int socket_fd, struct kvd_peer *peer)
{
	int ret = peer_pidfd(socket_fd, &peer->pidfd);

	if (ret == -ENOPROTOOPT)
		ret = open_pidfd(socket_fd, peer->pid, &peer->pidfd);
	if (!ret && kvd_peer_ended(peer)) {
		kvd_peer_close(peer);
		ret = -ESRCH;
	}
	return ret;
}

int kvd_peer_identify(int socket_fd, struct kvd_peer *out)
{
	struct kvd_peer peer = {.pidfd = -1};
	struct ucred credentials;
	socklen_t length = sizeof(credentials);
	int ret;

	if (getsockopt(socket_fd, SOL_SOCKET, SO_PEERCRED, &credentials, &length) < 0)
		return -errno;
	peer.pid = credentials.pid;
	peer.uid = credentials.uid;
	peer.gid = credentials.gid;
	if (peer.uid == overflow_uid()) {
		kvd_log_peer(
			KVD_LOG_WARNING,
			"refused a connection of uid %u (pid %d): it stands for every uid that this user "
			"namespace does not map; run the client under a mapped uid",
			peer.uid, peer.pid);
		return -EACCES;
	}
	ret = find_pidfd(socket_fd, &peer);
	if (ret < 0)
		return ret;
	*out = peer;
	return 0;
}

int kvd_peer_ended(const struct kvd_peer *peer)
{
	return peer->pidfd >= 0 && has_event(peer->pidfd, POLLIN);
}

void kvd_peer_close(struct kvd_peer *peer)
{
	if (peer->pidfd >= 0)
		close(peer->pidfd);
	peer->pidfd = -1;
}
