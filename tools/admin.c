/* SPDX-License-Identifier: Apache-2.0 */
/* A connection for the administration verbs. */
#include "admin.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <kvpool/error.h>

#include "ipc/frame.h"
#include "ipc/hash.h"
#include "text.h"

/* How long a full backlog is left alone before the next try. */
#define BACKLOG_WAIT_MS 10
#define START "start it ('systemctl start kvpoold', or see kvpoold(8))"

struct ctl_admin {
	int fd;
	uint64_t sequence;
	bool is_admin;
	const struct ctl_global *global;
	uint8_t bytes[KVW_MAX_MESSAGE_BYTES];
};

static const char *error_text(int error)
{
	switch (-error) {
#define CASE(name, number, text)                                                                             \
	case name:                                                                                           \
		return text;
		KVP_ERROR_MAP(CASE)
#undef CASE
	}
	return strerror(-error);
}

static int tell(const struct ctl_admin *admin, const char *what, int error)
{
	if (error == -ETIMEDOUT)
		ctl_complain("the daemon at '%s' did not answer within %u ms (%s)", admin->global->socket,
			     admin->global->timeout_ms, what);
	else if (error == 0 || error == -EPIPE || error == -ECONNRESET)
		ctl_complain("the daemon at '%s' has closed the connection before it answered (%s): it has "
			     "died or "
			     "ended; " START ", and see its log",
			     admin->global->socket, what);
	else
		ctl_complain("%s: %s", what, error_text(error));
	return error ? error : -KVP_EDAEMON;
}

/* The daemon's backlog may be full for a moment. */
static int connect_until(const struct ctl_global *global, uint64_t deadline_ns)
{
	int fd;

	while ((fd = kvw_connect(global->socket)) == -EAGAIN && kvw_now_ns() < deadline_ns)
		poll(NULL, 0, BACKLOG_WAIT_MS);
	return fd;
}

/* An error may come unasked, and then with no sequence: why a session is refused or ended. */
static int tell_refusal(const struct kvw_msg_ERROR *error)
{
	int code = error->error > 0 && error->error < 65536 ? -(int)error->error : -KVP_EPROTO;
	char text[KVW_MAX_TEXT_BYTES + 1];

	ctl_safe(error->text, text, sizeof(text));
	ctl_complain("the daemon says: %s", *text ? text : error_text(code));
	return code;
}

static int receive_reply(struct ctl_admin *admin, uint32_t type, uint64_t deadline_ns, union kvw_any *reply)
{
	struct kvw_envelope envelope = {0};
	int length;
	int ret;

	length = kvw_receive(admin->fd, deadline_ns, admin->bytes, sizeof(admin->bytes), NULL, NULL);
	if (length <= 0)
		return tell(admin, kvw_message_name(type), length == -EAGAIN ? -ETIMEDOUT : length);
	ret = kvw_decode(admin->bytes, (size_t)length, &envelope, reply);
	if (ret)
		return tell(admin, "the daemon's answer cannot be read", ret);
	if (envelope.type == KVW_MSG_ERROR)
		return tell_refusal(&reply->ERROR);
	if (envelope.sequence != admin->sequence || envelope.type != type + 1)
		return tell(admin, "the daemon's answer belongs to another request", -KVP_EPROTO);
	return 0;
}

int ctl_admin_call(struct ctl_admin *admin, uint32_t type, const void *message, union kvw_any *reply)
{
	uint64_t deadline_ns = kvw_deadline_ns(admin->global->timeout_ms);
	int length;
	int ret;

	length = kvw_encode(type, ++admin->sequence, message, admin->bytes, sizeof(admin->bytes));
	if (length < 0)
		return tell(admin, "the request cannot be packed", length);
	ret = kvw_send(admin->fd, admin->bytes, (size_t)length, NULL, 0);
	/* A daemon that has hung up may have said why. */
	if (ret && ret != -EPIPE)
		return tell(admin, kvw_message_name(type), ret);
	return receive_reply(admin, type, deadline_ns, reply);
}

int ctl_admin_call_on(struct ctl_admin *admin, const char *pool, uint32_t type, const void *message,
		      union kvw_any *reply)
{
	int ret = ctl_admin_call(admin, type, message, reply);

	if (ret == -KVP_ENOPOOL && !pool)
		ctl_complain("name a pool by --pool; 'kvpoolctl pools' lists them");
	return ret;
}

static int greet(struct ctl_admin *admin)
{
	uint8_t probe[KVW_SHA256_BYTES];
	struct kvw_hasher *hasher;
	struct kvw_msg_HELLO hello = {.version_min = KVW_VERSION_MIN,
				      .version_max = KVW_VERSION_MAX,
				      .hash_algorithm = KVW_HASH_SHA256,
				      .name = kvw_text_of("kvpoolctl")};
	union kvw_any reply;
	int ret = kvw_hasher_create(&hasher);

	if (ret)
		return tell(admin, "OpenSSL", ret);
	ret = kvw_hash_probe(hasher, probe);
	kvw_hasher_destroy(hasher);
	if (ret)
		return tell(admin, "OpenSSL", ret);
	hello.probe = kvw_bytes_of(probe, sizeof(probe));
	ret = ctl_admin_call(admin, KVW_MSG_HELLO, &hello, &reply);
	admin->is_admin = !ret && reply.HELLO_OK.admin;
	return ret;
}

bool ctl_admin_is_admin(const struct ctl_admin *admin)
{
	return admin->is_admin;
}

static void tell_unconnected(const char *socket, int error)
{
	if (error == -EACCES || error == -EPERM)
		ctl_complain(
			"may not connect to '%s': %s; its owner, its group and root may ('socket_mode' in "
			"kvpoold.conf(5))",
			socket, error_text(error));
	else
		ctl_complain("no daemon at '%s': %s; is kvpoold running, and is this its socket (--socket, "
			     "$KVPOOL_SOCKET)? If not, " START,
			     socket, error_text(error));
}

int ctl_admin_open(const struct ctl_global *global, struct ctl_admin **out)
{
	struct ctl_admin *admin = calloc(1, sizeof(*admin));
	int ret;

	if (!admin) {
		ctl_complain("out of memory");
		return -ENOMEM;
	}
	admin->global = global;
	admin->fd = connect_until(global, kvw_deadline_ns(global->timeout_ms));
	if (admin->fd < 0) {
		ret = admin->fd;
		tell_unconnected(global->socket, ret);
		goto free_admin;
	}
	ret = greet(admin);
	if (ret)
		goto close_fd;
	*out = admin;
	return 0;

close_fd:
	close(admin->fd);
free_admin:
	free(admin);
	return ret;
}

void ctl_admin_close(struct ctl_admin *admin)
{
	if (!admin)
		return;
	close(admin->fd);
	free(admin);
}

int ctl_admin_show(const struct ctl_global *global, uint32_t type, const void *message,
		   int (*show)(const union kvw_any *reply, bool json))
{
	struct ctl_admin *admin;
	union kvw_any reply;
	int code = CTL_DAEMON;

	if (ctl_admin_open(global, &admin))
		return CTL_DAEMON;
	if (!ctl_admin_call(admin, type, message, &reply))
		code = show(&reply, global->json);
	ctl_admin_close(admin);
	return code;
}
