/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hostile by connections and descriptors: many, silent, never read, unasked.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "foe.h"
#include "ipc/frame.h"

#define STRETCH_MS 300u
#define LORIS 24u
/*
 * More than the daemon of these runs has sessions, and with the attached ones more than it has descriptors.
 */
#define STORM 200u
#define UNREAD 24u
#define MOST_FDS 253u
/* A daemon without descriptors accepts nothing, and so answers nothing. */
#define STORM_ANSWER_MS 20u
/* Longer than the daemon waits for a greeting. */
#define GREETING_MS 7000

static void close_all(int *fds, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		if (fds[i] >= 0)
			close(fds[i]);
}

/* Connections that say nothing. In a long run until the daemon has enough of them. */
void kvt_mode_slow_loris(struct kvt_foe *foe)
{
	struct pollfd quiet[LORIS];
	int fds[LORIS];
	uint32_t i;

	kvt_foe_begin(foe, STRETCH_MS);
	for (i = 0; i < LORIS; i++) {
		fds[i] = kvw_connect(foe->daemon.socket);
		quiet[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
		foe->row->refused += fds[i] < 0;
	}
	if (poll(quiet, LORIS, foe->thorough ? GREETING_MS : (int)STRETCH_MS) == 0 && foe->thorough)
		kvt_foe_breach(foe, "a connection that never says hello is kept for %d ms", GREETING_MS);
	close_all(fds, LORIS);
}

/* Each attached as far as it goes: without mappings, so that many fit. */
static int storm_one(struct kvt_foe *foe, struct kvt_foe *other)
{
	const struct kvw_msg_ATTACH attach = kvt_foe_attach_message();
	int ret = kvt_foe_connect(other);

	if (!ret && kvt_foe_pick(foe, 4))
		ret = kvt_foe_hello(other);
	if (!ret && kvt_foe_pick(foe, 2))
		ret = kvt_foe_attach(other, &attach);
	return ret;
}

void kvt_mode_connection_storm(struct kvt_foe *foe)
{
	static struct kvt_foe others[STORM];
	uint32_t count;

	kvt_foe_begin(foe, 4 * STRETCH_MS);
	while (kvt_foe_goes_on(foe)) {
		for (count = 0; count < STORM && kvt_foe_goes_on(foe); count++) {
			others[count].daemon = foe->daemon;
			others[count].row = foe->row;
			others[count].answer_ms = STORM_ANSWER_MS;
			if (storm_one(foe, &others[count]))
				foe->row->refused++;
		}
		while (count--)
			kvt_foe_drop(&others[count]);
	}
}

/* Descriptors in flight count against the daemon's user: one message of them a session, and no second. */
void kvt_mode_unread_fds(struct kvt_foe *foe)
{
	static struct kvt_foe others[UNREAD];
	const struct kvw_msg_ATTACH attach = kvt_foe_attach_message();
	const struct kvw_msg_FDS request = {.first = 0};
	uint32_t i;

	kvt_foe_begin(foe, STRETCH_MS);
	for (i = 0; i < UNREAD; i++) {
		struct kvt_foe *other = &others[i];

		other->daemon = foe->daemon;
		other->row = foe->row;
		other->answer_ms = foe->answer_ms;
		if (kvt_foe_connect(other) || kvt_foe_hello(other) || kvt_foe_attach(other, &attach)) {
			foe->row->refused++;
			continue;
		}
		foe->row->sessions++;
		kvt_foe_send_message(other, KVW_MSG_FDS, &request);
		if (i % 2)
			kvt_foe_send_message(other, KVW_MSG_FDS, &request);
	}
	kvt_foe_read(foe, 10);
	while (i--) {
		if (others[i].raw.fd >= 0)
			kvt_foe_close(&others[i]);
	}
}

static void send_with_fds(struct kvt_foe *foe, const void *bytes, size_t length, int fd, uint32_t count)
{
	union {
		struct cmsghdr align;
		char bytes[CMSG_SPACE(MOST_FDS * sizeof(int))];
	} control = {.bytes = {0}};
	struct iovec part = {.iov_base = (void *)(uintptr_t)bytes, .iov_len = length};
	struct msghdr message = {.msg_iov = &part,
				 .msg_iovlen = 1,
				 .msg_control = control.bytes,
				 .msg_controllen = CMSG_SPACE(count * sizeof(int))};
	struct cmsghdr *header = CMSG_FIRSTHDR(&message);
	int fds[MOST_FDS];
	uint32_t i;

	for (i = 0; i < count; i++)
		fds[i] = fd;
	header->cmsg_level = SOL_SOCKET;
	header->cmsg_type = SCM_RIGHTS;
	header->cmsg_len = CMSG_LEN(count * sizeof(int));
	memcpy(CMSG_DATA(header), fds, count * sizeof(int));
	if (sendmsg(foe->raw.fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
		foe->row->bytes += length;
	else if (errno == EPERM) /* refused by the kernel, on the daemon's behalf: without them, then */
		kvt_foe_send(foe, bytes, length);
	else if (errno != EAGAIN && errno != ETOOMANYREFS)
		foe->ended = true;
}

void kvt_mode_attached_fds(struct kvt_foe *foe)
{
	const struct kvw_msg_POOL request = {.name = kvw_text_of(KVT_FOE_POOL)};
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	uint8_t bytes[256];

	kvt_foe_begin(foe, STRETCH_MS);
	while (kvt_foe_goes_on(foe)) {
		uint32_t count = kvt_foe_pick(foe, 8) ? 1 + kvt_foe_pick(foe, 8) : MOST_FDS;
		int length = kvw_encode(KVW_MSG_POOL, 1, &request, bytes, sizeof(bytes));

		/* Its own socket, too: a descriptor in flight within itself. */
		send_with_fds(foe, bytes, (size_t)length, kvt_foe_pick(foe, 4) ? fd : foe->raw.fd, count);
		kvt_foe_read(foe, 20);
	}
	close(fd);
}
