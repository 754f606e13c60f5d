/* SPDX-License-Identifier: Apache-2.0 */
/* What an attach does with a device: nothing, when the pool is the host's and no context was given. */
#ifndef KVPOOL_LIBCLIENT_ATTACH_CUDA_H
#define KVPOOL_LIBCLIENT_ATTACH_CUDA_H

#include <stdbool.h>

struct kvc_engine;
struct kvc_plan;
struct kvp_client;

/* Before the daemon is asked: client->cuda, in the context that the plan wants; refuses another device than the pool's. */
int kvc_device_open(struct kvp_client *client, const struct kvc_plan *plan);
/* When the segments are mapped: maps the pool, of these descriptors where it is shared so; pins what streams write. */
int kvc_device_bind(struct kvp_client *client, const int *chunk_fds);
/*
 * Waits for the context's work, where the attach had come to its end; unmaps and unpins; then tells the daemon that nothing of ours can touch the pool any more. `engine` may be NULL.
 * In a forked child nothing but memory is given back.
 */
void kvc_device_close(struct kvp_client *client, const struct kvc_engine *engine, bool forked);
/*
 * -KVP_EDAEMON when the daemon is gone and the pool was its allocation: everybody must let go of it. Costs a load, and a system call when the
 * daemon's heart has not beaten for a while. For the batch's thread.
 */
int kvc_device_check(struct kvp_client *client);

#endif
