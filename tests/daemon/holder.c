/* SPDX-License-Identifier: Apache-2.0 */
/* Holders: forked from the test, so they begin with a copy of the session's descriptor. */
#include "holder.h"

#include "support.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

void holder_init(void)
{
	assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
}

static void say_ready(int pipe_fd, pid_t child)
{
	if (write(pipe_fd, &child, sizeof(child)) != sizeof(child))
		_exit(3);
}

static void hold_for_ever(void)
{
	for (;;)
		pause();
}

static void *map_or_exit(int fd, uint64_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (memory == MAP_FAILED)
		_exit(2);
	*(volatile char *)memory = 1;
	return memory;
}

static void map_in_child(int fd, uint64_t bytes, int pipe_fd)
{
	pid_t child;

	map_or_exit(fd, bytes);
	close(fd);
	child = fork();
	if (!child) {
		prctl(PR_SET_PDEATHSIG, 0);
		hold_for_ever();
	}
	say_ready(pipe_fd, child);
}

/* `sh` says ready in our place: what it runs after is the builtin read, which waits on a pipe that nobody writes. */
static void exec_other(int fd, uint64_t bytes, int pipe_fd, bool keep_fd)
{
	char script[128];
	int never[2];

	if (!keep_fd)
		map_or_exit(fd, bytes);
	if (pipe(never) < 0)
		_exit(4);
	fcntl(fd, F_SETFD, keep_fd ? 0 : FD_CLOEXEC);
	fcntl(pipe_fd, F_SETFD, 0);
	/* Four zero bytes: "no child". */
	snprintf(script, sizeof(script), "printf '\\0\\0\\0\\0' >&%d; read x <&%d", pipe_fd, never[0]);
	execl("/bin/sh", "sh", "-c", script, (char *)NULL);
	_exit(5);
}

static void send_to_nobody(int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct iovec one = {.iov_base = "x", .iov_len = 1};
	struct msghdr message = {.msg_iov = &one,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = sizeof(control.bytes)};
	int ends[2];

	control.header.cmsg_level = SOL_SOCKET;
	control.header.cmsg_type = SCM_RIGHTS;
	control.header.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends) < 0 || sendmsg(ends[0], &message, 0) != 1)
		_exit(6);
	close(fd);
}

static void be_holder(enum holder_kind kind, int fd, uint64_t bytes, int pipe_fd)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	switch (kind) {
	case HOLDER_MAPS:
		map_or_exit(fd, bytes);
		close(fd);
		break;
	case HOLDER_CHILD_MAPS:
		map_in_child(fd, bytes, pipe_fd);
		hold_for_ever();
		break;
	case HOLDER_EXECS:
		exec_other(fd, bytes, pipe_fd, false);
		break;
	case HOLDER_EXECS_WITH_FD:
		exec_other(fd, bytes, pipe_fd, true);
		break;
	case HOLDER_FD_IN_FLIGHT:
		send_to_nobody(fd);
		break;
	default:
		break;
	}
	say_ready(pipe_fd, 0);
	hold_for_ever();
}

struct holder holder_start(enum holder_kind kind, int fd, uint64_t bytes)
{
	struct holder holder = {0};
	int ends[2];

	assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
	holder.pid = fork();
	assert_true(holder.pid >= 0);
	if (!holder.pid)
		be_holder(kind, fd, bytes, ends[1]);
	close(ends[1]);
	assert_int_equal(read(ends[0], &holder.child, sizeof(holder.child)), sizeof(holder.child));
	close(ends[0]);
	return holder;
}

void holder_kill(pid_t pid)
{
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
}
