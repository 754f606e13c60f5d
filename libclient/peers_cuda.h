/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timelines of other engines of the namespace, for this device's streams to wait on: asked of the daemon when a sequence is opened
 * whose blocks they still write, mapped and registered to be read, and kept, since who writes one coming block will write more.
 *
 * A page is let go of only when every step that waits on it has ended: a stream may look at it until then.
 */
#ifndef KVPOOL_LIBCLIENT_PEERS_CUDA_H
#define KVPOOL_LIBCLIENT_PEERS_CUDA_H

#include <stdbool.h>
#include <stdint.h>

struct kvc_awaits;
struct kvc_cuda;
struct kvc_peers;
struct kvc_use;
struct kvp_client;

int kvc_peers_create(struct kvc_peers **out);
/* Unmaps and unregisters all of them; nothing waits any more. */
void kvc_peers_close(struct kvc_cuda *cuda, bool forked);

/*
 * Gets the pages of whoever is awaited and not known yet, as far as the deadline allows. Without the lock. What can't be had is no error: the
 * blocks are then waited for on the host.
 */
void kvc_peers_learn(struct kvp_client *client, const struct kvc_awaits *awaits, uint64_t deadline_ns);
/*
 * Where the device sees a timeline's word of `session`, for a wait in the step `use`; 0: not known. Under the lock.
 */
uint64_t kvc_peers_address(struct kvc_peers *peers, uint64_t session, uint32_t timeline,
			   const struct kvc_use *use);

#endif
