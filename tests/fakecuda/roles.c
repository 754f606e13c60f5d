/* SPDX-License-Identifier: Apache-2.0 */
/* Further processes of a test: the same program in a role, with a socket between. On the double and on a real device. */
#include "control.h"

#include "support.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define ROLE_VARIABLE "KVT_CUDA_ROLE"

static void die(const char *what)
{
	perror(what);
	abort();
}

const char *kvt_cuda_role(void)
{
	return getenv(ROLE_VARIABLE);
}

/* Between fork() and exec(): only what a child of a program with threads may do. */
static void become_role(int socket_fd, char *const *environment)
{
	static char name[] = "role";
	char *const arguments[] = {name, NULL};

	if (dup2(socket_fd, KVT_CUDA_ROLE_SOCKET) < 0 || fcntl(KVT_CUDA_ROLE_SOCKET, F_SETFD, 0) < 0)
		_exit(126);
	execve("/proc/self/exe", arguments, environment);
	_exit(127);
}

/* True when a later entry of the same variable stands in `more`. */
static bool replaced(const char *entry, const char *const *more)
{
	size_t name = strcspn(entry, "=") + 1;

	for (; more && *more; more++)
		if (!strncmp(entry, *more, name))
			return true;
	return !strncmp(entry, ROLE_VARIABLE "=", name);
}

static char **make_environment(const char *role, const char *const *more)
{
	size_t count = 2;
	size_t used = 0;
	char **all;

	for (char **at = environ; *at; at++)
		count++;
	for (const char *const *at = more; at && *at; at++)
		count++;
	all = calloc(count, sizeof(*all));
	if (!all || asprintf(&all[used++], ROLE_VARIABLE "=%s", role) < 0)
		die("environment");
	for (char **at = environ; *at; at++)
		if (!replaced(*at, more))
			all[used++] = strdup(*at);
	for (const char *const *at = more; at && *at; at++)
		all[used++] = strdup(*at);
	return all;
}

pid_t kvt_cuda_spawn(const char *role, const char *const *environment, int *out_socket)
{
	char **all = make_environment(role, environment);
	int sockets[2];
	pid_t pid;

	assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
	pid = fork();
	if (!pid)
		become_role(sockets[1], all);
	assert_true(pid > 0);
	close(sockets[1]);
	for (char **at = all; *at; at++)
		free(*at);
	free(all);
	*out_socket = sockets[0];
	return pid;
}

void kvt_cuda_send(int socket_fd, const void *bytes, size_t length, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec part = {(void *)(uintptr_t)bytes, length};
	struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd >= 0) {
		packet.msg_control = &control;
		packet.msg_controllen = sizeof(control);
		control.header = (struct cmsghdr){
			.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	}
	assert_int_equal(sendmsg(socket_fd, &packet, MSG_NOSIGNAL), length);
}

void kvt_cuda_receive(int socket_fd, void *bytes, size_t length, int *out_fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct iovec part = {bytes, length};
	struct msghdr packet = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = sizeof(control)};
	int fd = -1;

	assert_int_equal(recvmsg(socket_fd, &packet, MSG_CMSG_CLOEXEC), length);
	if (packet.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	if (out_fd)
		*out_fd = fd;
	else if (fd >= 0)
		close(fd);
}

int kvt_cuda_reap(pid_t pid)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
