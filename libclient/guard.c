/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every call asks first: which process is this, and does the session stand.
 */
#include "client.h"
#include "error.h"

static int explain(int error)
{
	switch (error) {
	case -KVP_EFORKED:
		return kvc_fail(KVP_EFORKED,
				"the handle belongs to the parent process: connect in the child");
	case -KVP_EREVOKED:
		return kvc_fail(
			KVP_EREVOKED,
			"the daemon has revoked this session (its log says why): close and connect anew");
	case -KVP_EDEVICE:
		return kvc_fail(KVP_EDEVICE, "the daemon has lost the pool's device, and with it the "
					     "session: close, and look at its log");
	case -KVP_EDAEMON:
		return kvc_fail(
			KVP_EDAEMON,
			"the daemon is gone: blocks held stay readable, all else needs a new connection");
	case -KVP_EPROTO:
		return kvc_fail(KVP_EPROTO, "the daemon broke the protocol earlier: close and connect anew");
	default:
		return kvc_fail_plain(error, "the session");
	}
}

int kvc_enter(const struct kvp_client *client)
{
	int ret = kvc_check_forked(client);

	if (!ret)
		ret = kvc_check_session(client);
	return ret ? explain(ret) : 0;
}

int kvc_enter_engine(const struct kvp_client *client)
{
	int ret = kvc_enter(client);

	if (!ret && !kvc_engine_of(client))
		ret = kvc_fail(KVP_ESTATE, "the client is not attached to a pool: kvp_attach() first");
	return ret;
}

int kvc_need_daemon(const struct kvp_client *client)
{
	int ret = kvc_check_session(client);

	if (!ret && kvc_is_gone(client))
		ret = -KVP_EDAEMON;
	return ret ? explain(ret) : 0;
}

int kvc_fail_ring_full(const char *what)
{
	return kvc_fail(KVP_EBACKLOG, "the request ring is full (%u records): %s again later",
			KVW_RING_RECORDS, what);
}

int kvc_break(struct kvp_client *client, const char *what)
{
	atomic_store_explicit(&client->fault, -KVP_EPROTO, memory_order_relaxed);
	return kvc_fail(KVP_EPROTO,
			"the daemon sent %s: close and connect anew; do library and daemon belong together?",
			what);
}
