/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One datagram to the service manager.
 */
#include "notify.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The address's length, or -EINVAL: neither a path nor an abstract name, or too long. */
static int address_of(const char *name, struct sockaddr_un *out)
{
	size_t length = strlen(name);

	if ((name[0] != '/' && name[0] != '@') || length < 2 || length >= sizeof(out->sun_path))
		return -EINVAL;
	*out = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(out->sun_path, name, length);
	if (name[0] == '@') {
		out->sun_path[0] = '\0';
		return (int)(offsetof(struct sockaddr_un, sun_path) + length);
	}
	return (int)(offsetof(struct sockaddr_un, sun_path) + length + 1);
}

int kvd_notify(const char *state)
{
	const char *name = getenv("NOTIFY_SOCKET");
	struct sockaddr_un address;
	int length;
	int ret = 0;
	int fd;

	if (!name || !name[0])
		return 0;
	length = address_of(name, &address);
	if (length < 0)
		return length;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	if (sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, (socklen_t)length) <
	    0)
		ret = -errno;
	close(fd);
	return ret;
}
