/* SPDX-License-Identifier: Apache-2.0 */
/* The client's side of the device process: starting it, and telling it of memory and of queued writes. */
#include "late.h"
#include "fake.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static struct late_table *table;
static int device_socket = -1;

/* It lies beside this library. */
static void device_path(char *out, size_t bytes)
{
	Dl_info info;
	const char *slash;

	if (!dladdr((void *)&table, &info) || !(slash = strrchr(info.dli_fname, '/'))) {
		fprintf(stderr, "fakecuda: where is this library?\n");
		abort();
	}
	snprintf(out, bytes, "%.*s/fakecuda_device", (int)(slash - info.dli_fname), info.dli_fname);
}

/* In the child: only system calls. It inherits nothing of the client but the two descriptors. */
static void become_device(int socket_fd, int table_fd, char *const *arguments)
{
	if (fork())
		_exit(0);
	setsid();
	if (dup2(socket_fd, 1000) == 1000 && dup2(table_fd, 1001) == 1001 &&
	    dup2(1000, LATE_SOCKET_FD) >= 0 && dup2(1001, LATE_TABLE_FD) >= 0) {
		close_range(LATE_TABLE_FD + 1, ~0u, 0);
		execv(arguments[0], arguments);
	}
	_exit(1);
}

static void spawn(int socket_fd, int table_fd)
{
	char path[512];
	char pid[16];
	char milliseconds[32];
	char *arguments[] = {path, pid, milliseconds, NULL};
	pid_t child;

	device_path(path, sizeof(path));
	snprintf(pid, sizeof(pid), "%d", getpid());
	snprintf(milliseconds, sizeof(milliseconds), "%llu", (unsigned long long)fake_settings()->late_ms);
	child = fork();
	if (!child)
		become_device(socket_fd, table_fd, arguments);
	if (child < 0 || waitpid(child, NULL, 0) < 0)
		perror("fakecuda: the device process");
}

void fake_late_start(void)
{
	int sockets[2];
	int table_fd;
	char ready;

	if (table || !fake_settings()->late_ms)
		return;
	table_fd = memfd_create("fakecuda-late", MFD_CLOEXEC);
	if (table_fd < 0 || ftruncate(table_fd, sizeof(*table)) ||
	    socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets)) {
		perror("fakecuda: the device process");
		abort();
	}
	table = mmap(NULL, sizeof(*table), PROT_READ | PROT_WRITE, MAP_SHARED, table_fd, 0);
	device_socket = sockets[0];
	spawn(sockets[1], table_fd);
	close(sockets[1]);
	close(table_fd);
	/* It says one byte when it watches. */
	if (recv(device_socket, &ready, 1, 0) != 1)
		perror("fakecuda: the device process");
}

static void tell(uint64_t id, int fd)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control = {0};
	struct late_message message = {.id = id};
	struct iovec part = {&message, sizeof(message)};
	struct msghdr packet = {.msg_iov = &part, .msg_iovlen = 1};

	if (fd >= 0) {
		packet.msg_control = &control;
		packet.msg_controllen = sizeof(control);
		control.header = (struct cmsghdr){
			.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
		memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
	}
	if (device_socket >= 0 && sendmsg(device_socket, &packet, MSG_NOSIGNAL) < 0)
		perror("fakecuda: the device process");
}

/* Memory can come before a context does: cuMemCreate() needs none. */
void fake_late_memory(const struct fake_physical *physical)
{
	fake_late_start();
	tell(physical->id, physical->fd);
}

void fake_late_forget(const struct fake_physical *physical)
{
	tell(physical->id, -1);
}

/* Of a range over several mappings, the first part. */
uint32_t fake_late_begin(uint64_t address, uint64_t bytes)
{
	const struct fake_range *range = table ? fake_range_at(address) : NULL;

	for (uint32_t i = 0; range && range->physical && i < LATE_SLOTS; i++) {
		struct late_slot *slot = &table->slots[i];
		uint64_t rest = range->base + range->bytes - address;

		if (slot->id)
			continue;
		slot->offset = range->offset + (address - range->base);
		slot->bytes = bytes < rest ? bytes : rest;
		slot->id = range->physical->id;
		return i + 1;
	}
	return 0;
}

void fake_late_end(uint32_t slot)
{
	table->slots[slot - 1].id = 0;
}
