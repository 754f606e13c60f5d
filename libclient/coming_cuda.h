/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting on the device for blocks that other engines still write. */
#ifndef KVPOOL_LIBCLIENT_COMING_CUDA_H
#define KVPOOL_LIBCLIENT_COMING_CUDA_H

struct kvc_awaits;
struct kvc_use;
struct kvp_client;
struct kvw_cuda_stream;

/*
 * The stream goes on, in the step `use`, when all that is awaited is there or its writer is dead. In the context. 0; -EAGAIN: the
 * device can't wait for one of them, nothing is queued; -KVP_ELOST.
 */
int kvc_coming_queue(struct kvp_client *client, const struct kvc_awaits *awaits,
		     struct kvw_cuda_stream *stream, const struct kvc_use *use);

#endif
