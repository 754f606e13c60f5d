/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fakecuda_device <pid> <milliseconds>: outlives the client <pid> and goes on writing for it (late.h). Ends
 * when nothing was queued at the client's death, or when the time is over.
 */
#include "late.h"
#include "machine.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define MAX_MEMORIES 8192
#define MAX_BYTES (1u << 20)
#define PAUSE_NS 200000

struct memory {
	uint64_t id;
	int fd;
};

static struct memory memories[MAX_MEMORIES];
static unsigned count;
static unsigned char block[MAX_BYTES];

static struct memory *find(uint64_t id)
{
	for (unsigned i = 0; i < count; i++)
		if (memories[i].id == id)
			return &memories[i];
	return NULL;
}

static void note(uint64_t id, int fd)
{
	struct memory *memory = find(id);

	if (fd >= 0 && count < MAX_MEMORIES) {
		memories[count++] = (struct memory){id, fd};
	} else if (fd < 0 && memory) {
		close(memory->fd);
		*memory = memories[--count];
	}
}

/* False when the client is gone and everything it sent was read. */
static int receive(void)
{
	union {
		struct cmsghdr header;
		char bytes[CMSG_SPACE(sizeof(int))];
	} control;
	struct late_message message;
	struct iovec part = {&message, sizeof(message)};
	struct msghdr packet = {.msg_iov = &part,
				.msg_iovlen = 1,
				.msg_control = &control,
				.msg_controllen = sizeof(control)};
	int fd = -1;

	if (recvmsg(LATE_SOCKET_FD, &packet, MSG_CMSG_CLOEXEC | MSG_DONTWAIT) != sizeof(message))
		return 0;
	if (packet.msg_controllen >= CMSG_LEN(sizeof(int)))
		memcpy(&fd, CMSG_DATA(&control.header), sizeof(fd));
	note(message.id, fd);
	return 1;
}

/* By pidfd: a child that the client forked may keep the socket open. */
static void wait_for_death(int pidfd)
{
	struct pollfd entries[2] = {{.fd = LATE_SOCKET_FD, .events = POLLIN},
				    {.fd = pidfd, .events = POLLIN}};

	while (pidfd >= 0 && !entries[1].revents) {
		if (poll(entries, 2, -1) < 0)
			continue;
		while (receive())
			;
		if (entries[0].revents & POLLHUP)
			entries[0].fd = -1;
	}
	while (receive())
		;
}

static unsigned write_all(const struct late_table *table)
{
	unsigned written = 0;

	for (unsigned i = 0; i < LATE_SLOTS; i++) {
		const struct late_slot *slot = &table->slots[i];
		const struct memory *memory = slot->id ? find(slot->id) : NULL;
		size_t bytes = slot->bytes < MAX_BYTES ? slot->bytes : MAX_BYTES;

		if (memory && pwrite(memory->fd, block, bytes, (off_t)slot->offset) == (ssize_t)bytes)
			written++;
	}
	return written;
}

static uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static void go_on(const struct late_table *table, struct fake_machine *machine, uint64_t milliseconds)
{
	static const struct timespec pause = {.tv_nsec = PAUSE_NS};
	uint64_t end = now_ms() + milliseconds;
	unsigned written;

	do {
		written = write_all(table);
		if (machine)
			machine->late_writes += written;
		nanosleep(&pause, NULL);
	} while (written && now_ms() < end);
}

static void *map(int fd, size_t bytes)
{
	void *memory = fd < 0 ? MAP_FAILED : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

int main(int argc, char **argv)
{
	const char *path = getenv("FAKECUDA_MACHINE");
	struct fake_machine *machine;
	const struct late_table *table;
	int pidfd;

	if (argc != 3)
		return 2;
	memset(block, LATE_BYTE, sizeof(block));
	machine = path ? map(open(path, O_RDWR | O_CLOEXEC), sizeof(*machine)) : NULL;
	table = map(LATE_TABLE_FD, sizeof(*table));
	if (!table)
		return 1;
	if (machine)
		machine->late_writers++;
	pidfd = (int)syscall(SYS_pidfd_open, atoi(argv[1]), 0);
	(void)!send(LATE_SOCKET_FD, "", 1, MSG_NOSIGNAL);
	wait_for_death(pidfd);
	go_on(table, machine, strtoull(argv[2], NULL, 10));
	if (machine)
		machine->late_writers--;
	return 0;
}
