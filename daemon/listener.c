/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binding the socket: the lock first, then the question whether anybody answers, then the bind.
 */
#include "listener.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "ipc/frame.h"

#include "log.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

#define BACKLOG 128
/* Many times what the kernel takes to close a dead process's socket. */
#define OWNER_WAIT_NS UINT64_C(1000000000)

static void lock_path(const char *path, char *out, size_t capacity)
{
	snprintf(out, capacity, "%s.lock", path);
}

/*
 * Whether `fd` is still the file at `path`: its last owner may have removed it between our open and our
 * lock.
 */
static bool is_at(int fd, const char *path)
{
	struct stat opened;
	struct stat present;

	if (fstat(fd, &opened) || lstat(path, &present))
		return false;
	return opened.st_ino == present.st_ino && opened.st_dev == present.st_dev;
}

static int lock_once(const char *path, int *out_fd)
{
	int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	int ret;

	if (fd < 0)
		return -errno;
	if (flock(fd, LOCK_EX | LOCK_NB)) {
		ret = errno == EWOULDBLOCK ? -EADDRINUSE : -errno;
		close(fd);
		return ret;
	}
	if (!is_at(fd, path)) {
		close(fd);
		return -EAGAIN;
	}
	*out_fd = fd;
	return 0;
}

static int lock(const char *socket_path, int *out_fd)
{
	char path[128];
	int ret;

	lock_path(socket_path, path, sizeof(path));
	do
		ret = lock_once(path, out_fd);
	while (ret == -EAGAIN);
	if (ret == -EADDRINUSE)
		kvd_log_error(
			"socket '%s': another kvpoold serves it (its lock '%s' is taken); end that one or "
			"choose another path with 'socket'",
			socket_path, path);
	else if (ret)
		kvd_log_error(
			"socket '%s': its lock '%s' can't be made: %s; the folder must exist and be writable "
			"for uid %u",
			socket_path, path, strerror(-ret), geteuid());
	return ret;
}

/* Whether the other end is closed before then, which is at most OWNER_WAIT_NS away. Closes the descriptor. */
static bool breaks(int fd, uint64_t until_ns)
{
	struct pollfd entry = {.fd = fd, .events = POLLRDHUP};
	uint64_t now_ns = kvw_now_ns();
	int ret = now_ns < until_ns ? poll(&entry, 1, (int)((until_ns - now_ns) / 1000000) + 1) : 0;
	bool broke = ret > 0 || (ret < 0 && errno == EINTR);

	close(fd);
	return broke;
}

/*
 * Whether nobody holds the socket any more. Only a refusal says so: a live socket of another kind is a wrong
 * type, one of another user may be no permission. The kernel closes what a killed daemon's io_uring held a moment after that process has ended, lock
 * and all: until then connections are made, and break at the close.
 */
static int ask_for_owner(const char *path)
{
	uint64_t until_ns = kvw_now_ns() + OWNER_WAIT_NS;
	int fd;

	do {
		fd = kvw_connect(path);
		if (fd == -ECONNREFUSED || fd == -ENOENT)
			return 0;
		if (fd < 0 && fd != -EAGAIN && fd != -EPROTOTYPE)
			return fd;
	} while (fd >= 0 && breaks(fd, until_ns));
	kvd_log_error("socket '%s': another process answers on it; end that one or choose another path",
		      path);
	return -EADDRINUSE;
}

/* A socket file is left by a daemon that was killed. Anything else at the path is not ours to remove. */
static int remove_stale(const char *path)
{
	struct stat present;
	int ret;

	if (lstat(path, &present))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(present.st_mode)) {
		kvd_log_error(
			"socket '%s': a file that is no socket is there; remove it or choose another path",
			path);
		return -EEXIST;
	}
	ret = ask_for_owner(path);
	if (!ret && unlink(path) && errno != ENOENT)
		ret = -errno;
	if (ret && ret != -EADDRINUSE)
		kvd_log_error(
			"socket '%s': what is there (of uid %u) can't be removed: %s; remove it or choose "
			"another path",
			path, present.st_uid, strerror(-ret));
	return ret;
}

static int set_access(const char *path, const struct kvd_config *config)
{
	if (config->socket_group != (gid_t)-1 && chown(path, (uid_t)-1, config->socket_group))
		return -errno;
	return chmod(path, config->socket_mode) ? -errno : 0;
}

/* Nobody can connect before listen(), so access is right before the first connection. */
static int bind_and_listen(int fd, const struct kvd_config *config)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int ret;

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", config->socket);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)))
		return -errno;
	ret = set_access(config->socket, config);
	if (!ret && listen(fd, BACKLOG))
		ret = -errno;
	if (ret)
		unlink(config->socket);
	return ret;
}

/*
 * Nobody sends us descriptors. Where the kernel can (6.16), it refuses them at the sender: else the last close of each
 * would be ours, on the loop, with all the locks of its inode to walk. Accepted sockets inherit this.
 */
static void refuse_descriptors(int fd)
{
	const int no = 0;

	setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

static int open_socket(const struct kvd_config *config, int *out_fd)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int ret;

	if (fd < 0)
		return -errno;
	refuse_descriptors(fd);
	ret = bind_and_listen(fd, config);
	if (ret) {
		close(fd);
		return ret;
	}
	*out_fd = fd;
	return 0;
}

static void unlock(struct kvd_listener *listener)
{
	char path[128];

	lock_path(listener->path, path, sizeof(path));
	unlink(path);
	close(listener->lock_fd);
	listener->lock_fd = -1;
}

int kvd_listener_open(const struct kvd_config *config, struct kvd_listener *out)
{
	struct kvd_listener listener = {.fd = -1, .lock_fd = -1};
	int ret;

	snprintf(listener.path, sizeof(listener.path), "%s", config->socket);
	ret = lock(config->socket, &listener.lock_fd);
	if (ret)
		return ret;
	ret = remove_stale(config->socket);
	if (ret)
		goto err_unlock;
	ret = open_socket(config, &listener.fd);
	if (ret) {
		kvd_log_error("socket '%s': can't be opened with mode %04o: %s", config->socket,
			      (unsigned)config->socket_mode, strerror(-ret));
		goto err_unlock;
	}
	*out = listener;
	return 0;
err_unlock:
	unlock(&listener);
	return ret;
}

void kvd_listener_close(struct kvd_listener *listener)
{
	if (listener->fd < 0)
		return;
	unlink(listener->path);
	close(listener->fd);
	listener->fd = -1;
	unlock(listener);
}
