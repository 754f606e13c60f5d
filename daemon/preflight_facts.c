/* SPDX-License-Identifier: Apache-2.0 */
/* --check: looks at the machine. What it opens to try it out is closed again. */
#include "preflight_internal.h"

#include "memfd.h"

#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int try_io_uring(unsigned flags)
{
	struct io_uring ring;
	int ret = io_uring_queue_init(64, &ring, flags);

	if (!ret)
		io_uring_queue_exit(&ring);
	return ret;
}

static int try_peer_pidfd(void)
{
	int ends[2];
	int pidfd;
	socklen_t length = sizeof(pidfd);
	int ret = 0;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
		return -errno;
	if (getsockopt(ends[0], SOL_SOCKET, SO_PEERPIDFD, &pidfd, &length) < 0)
		ret = -errno;
	else
		close(pidfd);
	close(ends[0]);
	close(ends[1]);
	return ret;
}

static int try_pidfd_open(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0u);

	if (fd < 0)
		return -errno;
	close(fd);
	return 0;
}

static int try_lock(int fd)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = 1, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) < 0 ? -errno : 0;
}

static int try_ofd_locks(void)
{
	int again;
	int fd;
	int ret = kvd_memfd_create("kvpool-check", 0, 4096, &fd);

	if (ret < 0)
		return ret;
	ret = kvd_memfd_reopen(fd, O_RDWR, &again);
	if (!ret) {
		ret = try_lock(again);
		close(again);
	}
	close(fd);
	return ret;
}

/* "/run/kvpool/kvpoold.sock": "/run/kvpool". */
static void split_dir(const char *path, char *out, size_t capacity)
{
	const char *slash = strrchr(path, '/');

	if (!slash)
		snprintf(out, capacity, ".");
	else if (slash == path)
		snprintf(out, capacity, "/");
	else
		snprintf(out, capacity, "%.*s", (int)(slash - path), path);
}

static int look_at_dir(const char *dir)
{
	struct stat status;

	if (stat(dir, &status) < 0)
		return -errno;
	if (!S_ISDIR(status.st_mode))
		return -ENOTDIR;
	return faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

static bool somebody_listens(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool taken;

	if (fd < 0)
		return false;
	memcpy(address.sun_path, path, strlen(path) + 1);
	taken = !connect(fd, (const struct sockaddr *)&address, sizeof(address)) || errno == EAGAIN;
	close(fd);
	return taken;
}

void kvd_facts_look(const struct kvd_config *config, struct kvd_facts *out)
{
	memset(out, 0, sizeof(*out));
	kvd_machine_memory("", &out->memory);
	kvd_machine_huge("", &out->huge);
	kvd_machine_shmem_thp("", out->shmem_thp, sizeof(out->shmem_thp));
	getrlimit(RLIMIT_NOFILE, &out->descriptors);
	getrlimit(RLIMIT_MEMLOCK, &out->locked);
	getrlimit(RLIMIT_FSIZE, &out->file_bytes);
	out->io_uring_defer = try_io_uring(IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
	out->io_uring_plain = try_io_uring(0);
	out->io_uring_disabled = (int)kvd_machine_number("", "/proc/sys/kernel/io_uring_disabled", -1);
	out->peer_pidfd = try_peer_pidfd();
	out->pidfd_open = try_pidfd_open();
	out->ofd_locks = try_ofd_locks();
	split_dir(config->socket, out->socket_dir, sizeof(out->socket_dir));
	out->socket_dir_access = look_at_dir(out->socket_dir);
	out->socket_taken = somebody_listens(config->socket);
	kvd_facts_look_cuda(config, out);
}

void kvd_facts_drop(struct kvd_facts *facts)
{
	free(facts->cuda);
	facts->cuda = NULL;
}
