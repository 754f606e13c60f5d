/* SPDX-License-Identifier: Apache-2.0 */
/* What an attach does with a device: nothing, when the pool is the host's and no context was given. */
#ifndef KVPOOL_LIBCLIENT_ATTACH_CUDA_H
#define KVPOOL_LIBCLIENT_ATTACH_CUDA_H

struct kvc_plan;
struct kvp_client;

/* Before the daemon is asked: client->cuda, in the context that the plan wants. */
int kvc_device_open(struct kvp_client *client, const struct kvc_plan *plan);
/* When the segments are mapped: what streams write is pinned. */
int kvc_device_bind(struct kvp_client *client);

#endif
