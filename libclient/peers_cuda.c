/* SPDX-License-Identifier: Apache-2.0 */
#include "peers_cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "ipc/frame.h"

#include "client.h"
#include "coming.h"
#include "control.h"
#include "cuda.h"
#include "error.h"
#include "map.h"

/* Engines that write at once what this one reads. */
#define PEERS 32u

struct peer {
	uint64_t session; /* 0: unused */
	struct kvc_mapping page;
	struct kvc_pinned pinned;
	uint64_t uses[KVW_TIMELINES]; /* own steps that wait on it */
};

/* Under the client's lock; who adds has the control too, so that one at a time does. */
struct kvc_peers {
	uint32_t next; /* where the search for a place begins */
	struct peer of[PEERS];
};

int kvc_peers_create(struct kvc_peers **out)
{
	struct kvc_peers *peers = calloc(1, sizeof(*peers));

	if (!peers)
		return kvc_fail_plain(ENOMEM, "places for other engines' timelines");
	*out = peers;
	return 0;
}

static struct peer *find(struct kvc_peers *peers, uint64_t session)
{
	uint32_t i;

	for (i = 0; i < PEERS; i++)
		if (peers->of[i].session == session)
			return &peers->of[i];
	return NULL;
}

uint64_t kvc_peers_address(struct kvc_peers *peers, uint64_t session, uint32_t timeline,
			   const struct kvc_use *use)
{
	struct peer *peer = session ? find(peers, session) : NULL;

	if (!peer)
		return 0;
	if (peer->uses[use->timeline] < use->step)
		peer->uses[use->timeline] = use->step;
	return peer->pinned.address + offsetof(struct kvw_timelines, line) +
	       (uint64_t)timeline * sizeof(((struct kvw_timelines *)0)->line[0]);
}

/* ------------------------------------------------------------------ letting go */

static void let_go(const struct kvc_cuda *cuda, struct peer *peer)
{
	bool pushed;

	if (peer->pinned.memory && !kvc_cuda_enter(cuda, &pushed)) {
		kvc_unpin(cuda, &peer->pinned);
		kvc_cuda_leave(cuda, pushed);
	}
	kvc_unmap(&peer->page);
}

void kvc_peers_close(struct kvc_cuda *cuda, bool forked)
{
	uint32_t i;

	/* A child has neither the context nor the mappings. */
	for (i = 0; cuda->peers && !forked && i < PEERS; i++)
		let_go(cuda, &cuda->peers->of[i]);
	free(cuda->peers);
	cuda->peers = NULL;
}

static bool is_idle(const struct kvc_engine *engine, const struct peer *peer)
{
	uint32_t i;

	for (i = 0; i < KVW_TIMELINES; i++)
		if (kvc_reached(engine, i) < peer->uses[i])
			return false;
	return true;
}

/* A free place, or that of one on which nothing waits; then *out_old is to be let go of. NULL: all are in use. */
static struct peer *find_place(struct kvp_client *client, struct peer *out_old)
{
	struct kvc_peers *peers = client->cuda->peers;
	uint32_t i;

	for (i = 0; i < PEERS; i++) {
		struct peer *peer = &peers->of[(peers->next + i) % PEERS];

		if (!is_idle(client->engine, peer))
			continue;
		peers->next = (peers->next + i + 1) % PEERS;
		*out_old = *peer;
		*peer = (struct peer){0};
		return peer;
	}
	return NULL;
}

/* ------------------------------------------------------------------ getting to know */

static bool is_known(struct kvp_client *client, uint64_t session)
{
	bool known;

	pthread_mutex_lock(&client->lock);
	known = find(client->cuda->peers, session) != NULL;
	pthread_mutex_unlock(&client->lock);
	return known;
}

/* Another thread of the application may be capturing: that must neither forbid this nor break by it. */
static int pin_page(const struct kvc_cuda *cuda, struct peer *peer)
{
	unsigned mode = KVW_CUDA_CAPTURE_RELAXED;
	struct kvw_cuda_error error;
	bool pushed;
	int ret = kvc_cuda_enter(cuda, &pushed);

	if (ret)
		return ret;
	ret = KVW_CUDA(cuda->driver, &error, cuThreadExchangeStreamCaptureMode, &mode);
	if (ret < 0) {
		ret = kvc_cuda_fail(ret, &error, "setting a thread's capture mode");
	} else {
		ret = kvc_pin_to_read(cuda, peer->page.memory, KVW_PAGE_BYTES, "timelines of another engine",
				      &peer->pinned);
		(void)KVW_CUDA(cuda->driver, NULL, cuThreadExchangeStreamCaptureMode, &mode);
	}
	kvc_cuda_leave(cuda, pushed);
	return ret;
}

static int map_page(struct kvp_client *client, const struct kvw_msg_TIMELINES_OK *told, int fd,
		    struct peer *peer)
{
	int ret;

	if (told->session != peer->session || told->bytes != KVW_PAGE_BYTES)
		return kvc_break(client, "other timelines than it was asked for");
	ret = kvc_map_segment(fd, KVW_PAGE_BYTES, 0, "timelines of another engine", &peer->page);
	if (!ret)
		ret = pin_page(client->cuda, peer);
	if (ret)
		kvc_unmap(&peer->page);
	return ret;
}

static int fetch(struct kvp_client *client, uint64_t deadline_ns, struct peer *peer)
{
	const struct kvw_msg_TIMELINES request = {.session = peer->session};
	union kvw_any answer;
	uint32_t count = 1;
	int fd = -1;
	int ret = kvc_control_call(client, deadline_ns, KVW_MSG_TIMELINES, &request, &answer, &fd, &count);

	if (ret)
		return ret;
	ret = count == 1 ? map_page(client, &answer.TIMELINES_OK, fd, peer)
			 : kvc_break(client, "timelines without their descriptor");
	if (count)
		close(fd);
	return ret;
}

/* Under the control. */
static int learn(struct kvp_client *client, uint64_t session, uint64_t deadline_ns)
{
	struct peer peer = {.session = session};
	struct peer old = {0};
	struct peer *place;
	int ret;

	if (is_known(client, session))
		return 0;
	ret = fetch(client, deadline_ns, &peer);
	if (ret)
		return ret;
	pthread_mutex_lock(&client->lock);
	place = find_place(client, &old);
	if (place)
		*place = peer;
	pthread_mutex_unlock(&client->lock);
	let_go(client->cuda, place ? &old : &peer);
	return 0;
}

void kvc_peers_learn(struct kvp_client *client, const struct kvc_awaits *awaits, uint64_t deadline_ns)
{
	int ret = 0;
	uint32_t i;

	if (!client->cuda || !client->cuda->peers || !(client->features & KVW_FEATURE_TIMELINES))
		return;
	for (i = 0; i < awaits->count && ret != -ETIMEDOUT; i++) {
		if (is_known(client, awaits->of[i].writer))
			continue;
		if (kvw_now_ns() >= deadline_ns || kvc_control_begin(client, deadline_ns))
			return;
		ret = learn(client, awaits->of[i].writer, deadline_ns);
		kvc_control_end(client);
	}
}
