/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a connection: hello, and the end.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ipc/frame.h"
#include "ipc/hash.h"

#include "attach.h"
#include "client.h"
#include "control.h"
#include "error.h"
#include "fork.h"
#include "params.h"

#define DEFAULT_PATH "/run/kvpool/kvpoold.sock"
#define DEFAULT_TIMEOUT_MS 5000u
/* Between tries while the daemon's backlog is full. */
#define BACKLOG_WAIT_MS 5

const char *kvp_version(void)
{
	return KVP_VERSION_STRING;
}

static const char *socket_path(const struct kvp_connect_params *params)
{
	const char *path = params->path ? params->path : getenv("KVPOOL_SOCKET");

	return path && path[0] ? path : DEFAULT_PATH;
}

/* The descriptor, or an error. */
static int connect_socket(const char *path, uint64_t deadline_ns)
{
	int fd;

	while ((fd = kvw_connect(path)) == -EAGAIN && kvw_now_ns() < deadline_ns)
		poll(NULL, 0, BACKLOG_WAIT_MS);
	if (fd < 0)
		return kvc_fail(fd, "connecting to '%s': %s; does kvpoold run there?", path,
				kvp_error_text(fd));
	return fd;
}

static int check_hello(struct kvp_client *client, const struct kvp_connect_params *params,
		       const struct kvw_msg_HELLO_OK *hello)
{
	if (hello->version < KVW_VERSION_MIN || hello->version > KVW_VERSION_MAX)
		return kvc_fail(KVP_EVERSION,
				"the daemon answered protocol version %llu, this library speaks %u to %u",
				(unsigned long long)hello->version, KVW_VERSION_MIN, KVW_VERSION_MAX);
	if (hello->hash_algorithm != KVW_HASH_SHA256)
		return kvc_fail(KVP_EHASH, "the daemon hashes by algorithm %llu, this library by %u",
				(unsigned long long)hello->hash_algorithm, KVW_HASH_SHA256);
	if (!hello->session || !hello->incarnation)
		return kvc_break(client, "a hello without ids");
	if (params->incarnation && params->incarnation != hello->incarnation)
		return kvc_fail(
			KVP_EINCARNATION, "the daemon's run is %llx, not %llx: it was restarted, attach anew",
			(unsigned long long)hello->incarnation, (unsigned long long)params->incarnation);
	client->incarnation = hello->incarnation;
	client->session = hello->session;
	client->features = hello->features;
	return 0;
}

static int hash_probe(uint8_t out[KVW_SHA256_BYTES])
{
	struct kvw_hasher *hasher;
	int ret = kvw_hasher_create(&hasher);

	if (ret)
		return kvc_fail_plain(ret, "making a SHA-256 context");
	ret = kvw_hash_probe(hasher, out);
	kvw_hasher_destroy(hasher);
	return ret ? kvc_fail_plain(ret, "hashing by SHA-256") : 0;
}

static int say_hello(struct kvp_client *client, const struct kvp_connect_params *params, uint64_t deadline_ns)
{
	uint8_t probe[KVW_SHA256_BYTES];
	char name[KVW_MAX_NAME_BYTES + 1] = {0};
	struct kvw_msg_HELLO hello = {
		.version_min = KVW_VERSION_MIN,
		.version_max = KVW_VERSION_MAX,
		.incarnation = params->incarnation,
		.hash_algorithm = KVW_HASH_SHA256,
		.probe = kvw_bytes_of(probe, sizeof(probe)),
	};
	union kvw_any answer;
	int ret = hash_probe(probe);

	if (ret)
		return ret;
	strncpy(name, params->name ? params->name : program_invocation_short_name, KVW_MAX_NAME_BYTES);
	hello.name = kvw_text_of(name);
	ret = kvc_control_begin(client, deadline_ns);
	if (ret)
		return ret;
	ret = kvc_control_call(client, deadline_ns, KVW_MSG_HELLO, &hello, &answer, NULL, NULL);
	if (!ret)
		ret = check_hello(client, params, &answer.HELLO_OK);
	kvc_control_end(client);
	return ret;
}

static int create_client(struct kvp_client **out)
{
	struct kvp_client *client = calloc(1, sizeof(*client));
	int ret;

	if (!client)
		return kvc_fail_plain(ENOMEM, "a client");
	ret = kvc_mark_create(&client->mark);
	if (ret) {
		free(client);
		return ret;
	}
	ret = kvc_control_init(&client->control);
	if (ret) {
		kvc_mark_destroy(client->mark);
		free(client);
		return ret;
	}
	pthread_mutex_init(&client->lock, NULL);
	*out = client;
	return 0;
}

int kvp_connect(const struct kvp_connect_params *params, struct kvp_client **out)
{
	struct kvp_connect_params own = {.size = sizeof(own)};
	struct kvp_client *client = NULL;
	uint64_t deadline_ns;
	int ret = params ? kvc_params_read(&own, sizeof(own), params, "kvp_connect_params") : 0;

	if (ret)
		return ret;
	deadline_ns = kvw_deadline_ns(own.timeout_ms ? own.timeout_ms : DEFAULT_TIMEOUT_MS);
	ret = create_client(&client);
	if (ret)
		return ret;
	ret = connect_socket(socket_path(&own), deadline_ns);
	if (ret >= 0) {
		client->control.socket_fd = ret;
		ret = say_hello(client, &own, deadline_ns);
	}
	if (ret) {
		kvp_close(client);
		return ret;
	}
	*out = client;
	return 0;
}

void kvp_close(struct kvp_client *client)
{
	bool forked;

	if (!client)
		return;
	forked = kvc_check_forked(client) != 0;
	/* The pool goes before the socket: when the daemon sees the end, its proof that nothing is mapped holds already. */
	kvc_detach(client, forked);
	if (client->control.socket_fd >= 0)
		close(client->control.socket_fd);
	/* In a forked child another thread of the parent may have held them: a held mutex is not destroyed, only forgotten. */
	if (!forked) {
		kvc_control_destroy(&client->control);
		pthread_mutex_destroy(&client->lock);
	}
	kvc_mark_destroy(client->mark);
	free(client);
}

uint64_t kvp_incarnation(const struct kvp_client *client)
{
	return kvc_check_forked(client) ? 0 : client->incarnation;
}

uint64_t kvp_session_id(const struct kvp_client *client)
{
	return kvc_check_forked(client) ? 0 : client->session;
}

int kvp_check(const struct kvp_client *client)
{
	return kvc_enter(client);
}
