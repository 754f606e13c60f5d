/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One datagram a message. Nothing here blocks in send or receive itself: waiting is poll's, so that every
 * wait has its deadline and a signal only makes it look at the clock again.
 */
#include "frame.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "limits.h"

/*
 * Room for what a peer may attach: descriptors, and its credentials where the socket asks for them. Without
 * credentials the kernel puts a few more descriptors there than KVW_MAX_FDS_PER_MESSAGE; what does not fit it
 * cuts, and tells so by MSG_CTRUNC.
 */
#define CONTROL_BYTES (CMSG_SPACE(KVW_MAX_FDS_PER_MESSAGE * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred)))
union control {
	struct cmsghdr header;
	char bytes[CONTROL_BYTES];
};

uint64_t kvw_now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t kvw_deadline_ns(uint32_t timeout_ms)
{
	return timeout_ms == UINT32_MAX ? UINT64_MAX : kvw_now_ns() + (uint64_t)timeout_ms * 1000000u;
}

static void attach_fds(struct msghdr *message, union control *control, const int *fds, uint32_t fd_count)
{
	struct cmsghdr *header;

	memset(control, 0, sizeof(*control));
	message->msg_control = control;
	message->msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
	header = CMSG_FIRSTHDR(message);
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
	memcpy(CMSG_DATA(header), fds, fd_count * sizeof(int));
}

int kvw_send(int socket_fd, const uint8_t *bytes, size_t length, const int *fds, uint32_t fd_count)
{
	/* sendmsg() only reads the bytes; struct iovec serves both directions. */
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
	struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
	union control control;
	ssize_t sent;

	/* An empty datagram reads as the end of file. */
	if (length == 0 || fd_count > KVW_MAX_FDS_PER_MESSAGE)
		return -EINVAL;
	if (length > KVW_MAX_MESSAGE_BYTES)
		return -EMSGSIZE;
	if (fd_count > 0)
		attach_fds(&message, &control, fds, fd_count);
	do {
		sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
	} while (sent < 0 && errno == EINTR);
	return sent < 0 ? -errno : 0;
}

static void close_all(const int *fds, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		close(fds[i]);
}

/*
 * Descriptors of a received message: as many as the control buffer can hold. They are this process's from
 * here on.
 */
struct arrived {
	int fds[CONTROL_BYTES / sizeof(int)];
	uint32_t count;
};

static void gather_fds(struct msghdr *message, struct arrived *out)
{
	struct cmsghdr *header;

	out->count = 0;
	for (header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
		size_t bytes = header->cmsg_len - CMSG_LEN(0);

		if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS)
			continue;
		memcpy(out->fds + out->count, CMSG_DATA(header), bytes);
		out->count += (uint32_t)(bytes / sizeof(int));
	}
}

/* 0, or why the message cannot be used. */
static int check_whole(const struct msghdr *message, const struct arrived *arrived)
{
	if (message->msg_flags & MSG_CTRUNC || arrived->count > KVW_MAX_FDS_PER_MESSAGE)
		return -EPROTO;
	return message->msg_flags & MSG_TRUNC ? -EMSGSIZE : 0;
}

/* Hands the first descriptors to the caller and closes those above its room. */
static void deliver_fds(const struct arrived *arrived, int *fds, uint32_t *fd_count)
{
	uint32_t room = fd_count ? *fd_count : 0;
	uint32_t kept = arrived->count < room ? arrived->count : room;

	close_all(arrived->fds + kept, arrived->count - kept);
	if (kept > 0)
		memcpy(fds, arrived->fds, kept * sizeof(int));
	if (fd_count)
		*fd_count = kept;
}

/* One look at the socket, without waiting. */
static int receive_now(int socket_fd, uint8_t *bytes, size_t capacity, int *fds, uint32_t *fd_count)
{
	struct iovec part = {.iov_base = bytes, .iov_len = capacity};
	union control control;
	struct msghdr message = {
		.msg_iov = &part,
		.msg_iovlen = 1,
		.msg_control = &control,
		.msg_controllen = sizeof(control),
	};
	struct arrived arrived;
	ssize_t length = recvmsg(socket_fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	int ret;

	if (length < 0)
		return -errno;
	gather_fds(&message, &arrived);
	ret = check_whole(&message, &arrived);
	if (ret || length == 0) {
		close_all(arrived.fds, arrived.count);
		arrived.count = 0;
	}
	if (ret)
		return ret;
	deliver_fds(&arrived, fds, fd_count);
	return (int)length;
}

/* Waits until the socket has something to say. 0 also after a signal: the caller looks again. */
static int wait_readable(int socket_fd, uint64_t deadline_ns)
{
	struct pollfd entry = {.fd = socket_fd, .events = POLLIN};
	struct timespec rest = {0};
	uint64_t now = kvw_now_ns();
	int ready;

	if (now >= deadline_ns)
		return -ETIMEDOUT;
	rest.tv_sec = (time_t)((deadline_ns - now) / 1000000000u);
	rest.tv_nsec = (long)((deadline_ns - now) % 1000000000u);
	ready = ppoll(&entry, 1, deadline_ns == UINT64_MAX ? NULL : &rest, NULL);
	if (ready < 0 && errno != EINTR)
		return -errno;
	return 0;
}

int kvw_receive(int socket_fd, uint64_t deadline_ns, uint8_t *bytes, size_t capacity, int *fds,
		uint32_t *fd_count)
{
	for (;;) {
		int ret = receive_now(socket_fd, bytes, capacity, fds, fd_count);

		if (ret != -EAGAIN && ret != -EINTR)
			return ret;
		if (ret == -EAGAIN && deadline_ns == 0)
			return ret;
		if (ret == -EAGAIN)
			ret = wait_readable(socket_fd, deadline_ns);
		if (ret < 0 && ret != -EINTR)
			return ret;
	}
}

int kvw_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	size_t length = strlen(path);
	int fd, ret;

	if (length == 0)
		return -EINVAL;
	if (length >= sizeof(address.sun_path))
		return -ENAMETOOLONG;
	memcpy(address.sun_path, path, length + 1);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* Non-blocking, so that a full backlog is -EAGAIN and not a wait without a deadline. */
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0) {
		ret = -errno;
		close(fd);
		return ret;
	}
	return fd;
}
