/* SPDX-License-Identifier: Apache-2.0 */
#include "control.h"

#include <errno.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include "ipc/frame.h"

#include "client.h"
#include "error.h"

#define NS_PER_S 1000000000ull

int kvc_control_init(struct kvc_control *control)
{
	pthread_condattr_t monotonic;
	int ret;

	control->socket_fd = -1;
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	ret = pthread_cond_init(&control->idle, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (ret)
		return kvc_fail_plain(ret, "a condition variable");
	pthread_mutex_init(&control->lock, NULL);
	return 0;
}

void kvc_control_destroy(struct kvc_control *control)
{
	pthread_cond_destroy(&control->idle);
	pthread_mutex_destroy(&control->lock);
}

int kvc_control_begin(struct kvp_client *client, uint64_t deadline_ns)
{
	/* UINT64_MAX ns is centuries away: as good as for ever. */
	const struct timespec until = {
		.tv_sec = (time_t)(deadline_ns / NS_PER_S),
		.tv_nsec = (long)(deadline_ns % NS_PER_S),
	};
	struct kvc_control *control = &client->control;
	bool taken;
	int ret = 0;

	pthread_mutex_lock(&control->lock);
	while (control->busy && !ret)
		ret = pthread_cond_timedwait(&control->idle, &control->lock, &until);
	taken = !control->busy;
	control->busy = true;
	pthread_mutex_unlock(&control->lock);
	if (!taken)
		return kvc_fail(ETIMEDOUT, "another thread's request to the daemon did not end in time");
	return 0;
}

void kvc_control_end(struct kvp_client *client)
{
	struct kvc_control *control = &client->control;

	pthread_mutex_lock(&control->lock);
	control->busy = false;
	pthread_cond_signal(&control->idle);
	pthread_mutex_unlock(&control->lock);
}

static void close_all(const int *fds, uint32_t count)
{
	uint32_t i;

	for (i = 0; i < count; i++)
		close(fds[i]);
}

/* The daemon's side of the socket is closed: a revocation, if there was one, says why. */
static int lost(struct kvp_client *client)
{
	atomic_store_explicit(&client->gone, -KVP_EDAEMON, memory_order_relaxed);
	if (kvc_check_revoked(client))
		return kvc_fail_plain(kvc_check_revoked(client), "the daemon has closed the session");
	return kvc_fail(
		KVP_EDAEMON,
		"the daemon has closed the connection: is kvpoold running, and what does its log say?");
}

static int is_lost(int error)
{
	return error == -EPIPE || error == -ECONNRESET || error == -ENOTCONN;
}

int kvc_control_look(struct kvp_client *client)
{
	/* Not by reading ahead: a late answer that nobody waits for would hide the end behind it. */
	struct pollfd entry = {.fd = client->control.socket_fd, .events = POLLRDHUP};

	if (atomic_load_explicit(&client->gone, memory_order_relaxed) || poll(&entry, 1, 0) > 0)
		return lost(client);
	return 0;
}

/* Milliseconds until the deadline, for poll(): at least 1, at most 1,000. 0: it has passed. */
static int poll_ms(uint64_t deadline_ns)
{
	uint64_t now = kvw_now_ns();
	uint64_t left = deadline_ns > now ? (deadline_ns - now + 999999) / 1000000 : 0;

	return left > 1000 ? 1000 : (int)left;
}

static int send_request(struct kvp_client *client, uint64_t deadline_ns, const uint8_t *bytes, int length)
{
	struct pollfd entry = {.fd = client->control.socket_fd, .events = POLLOUT};
	int ret, wait_ms;

	for (;;) {
		ret = kvw_send(client->control.socket_fd, bytes, (size_t)length, NULL, 0);
		if (ret != -EAGAIN)
			break;
		wait_ms = poll_ms(deadline_ns);
		if (!wait_ms)
			return kvc_fail(ETIMEDOUT, "the daemon did not take a request in time");
		poll(&entry, 1, wait_ms);
	}
	/* Closed already: a last word may lie in our queue, and says more than the end. */
	if (ret >= 0 || is_lost(ret))
		return 0;
	return kvc_fail_plain(ret, "sending to the daemon");
}

static int error_of(const struct kvw_msg_ERROR *error)
{
	char text[KVW_MAX_TEXT_BYTES + 1];
	int code = error->error >= 1 && error->error <= 0xffff ? (int)error->error : KVP_EPROTO;

	kvw_text_copy(error->text, text, sizeof(text));
	return kvc_fail(code, "%s", text[0] ? text : kvp_error_text(code));
}

/* One message: 1 when it answers request `type`, 0 when it is a late answer to an earlier one, else an error. */
static int take_answer(struct kvp_client *client, size_t length, uint32_t type, union kvw_any *answer)
{
	struct kvw_envelope envelope = {0};
	int ret = kvw_decode(client->control.message, length, &envelope, answer);

	if (ret)
		return kvc_break(client, "an unreadable message");
	if (!envelope.sequence && envelope.type == KVW_MSG_ERROR) {
		/* Its last word before it closes the connection. */
		atomic_store_explicit(&client->gone, -KVP_EDAEMON, memory_order_relaxed);
		return error_of(&answer->ERROR);
	}
	if (envelope.sequence < client->control.sequence)
		return 0;
	if (envelope.sequence > client->control.sequence)
		return kvc_break(client, "an answer to a request that was not sent");
	if (envelope.type == KVW_MSG_ERROR)
		return error_of(&answer->ERROR);
	if (envelope.type != type + 1)
		return kvc_break(client, "an answer of the wrong type");
	return 1;
}

static int fail_late(uint32_t type)
{
	return kvc_fail(ETIMEDOUT, "the daemon did not answer a %s request in time: wait longer",
			kvw_message_name(type));
}

static int receive_answer(struct kvp_client *client, uint64_t deadline_ns, uint32_t type,
			  union kvw_any *answer, int *fds, uint32_t *fd_count)
{
	struct kvc_control *control = &client->control;
	uint32_t count;
	int ret;

	do {
		count = fds ? *fd_count : 0;
		ret = kvw_receive(control->socket_fd, deadline_ns, control->message, sizeof(control->message),
				  fds, fds ? &count : NULL);
		if (ret == 0 || is_lost(ret))
			return lost(client);
		if (ret == -ETIMEDOUT || ret == -EAGAIN)
			return fail_late(type);
		if (ret == -EMSGSIZE)
			return kvc_break(client, "a message above the limit");
		if (ret < 0)
			return kvc_fail_plain(ret, "receiving from the daemon");
		ret = take_answer(client, (size_t)ret, type, answer);
		if (ret <= 0 && fds)
			close_all(fds, count);
		/* However many late ones come, the deadline stands. */
		if (!ret && kvw_now_ns() >= deadline_ns)
			ret = fail_late(type);
	} while (ret == 0);
	if (ret < 0)
		return ret;
	if (fds)
		*fd_count = count;
	return 0;
}

int kvc_control_call(struct kvp_client *client, uint64_t deadline_ns, uint32_t type, const void *request,
		     union kvw_any *answer, int *fds, uint32_t *fd_count)
{
	struct kvc_control *control = &client->control;
	int ret = kvc_need_daemon(client);

	if (ret)
		return ret;
	ret = kvw_encode(type, ++control->sequence, request, control->message, KVW_MAX_MESSAGE_BYTES);
	if (ret < 0)
		return kvc_fail(ret, "a %s request is too long or has text that is not UTF-8",
				kvw_message_name(type));
	ret = send_request(client, deadline_ns, control->message, ret);
	if (ret)
		return ret;
	return receive_answer(client, deadline_ns, type, answer, fds, fd_count);
}
