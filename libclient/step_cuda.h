/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVPOOL_LIBCLIENT_STEP_CUDA_H
#define KVPOOL_LIBCLIENT_STEP_CUDA_H

#include <stdint.h>

struct kvc_cuda;
struct kvp_client;

/* kvc_enter_engine(), then -KVP_ESTATE without a device. */
int kvc_enter_cuda(const struct kvp_client *client);
/* Where the device has the word of a timeline of ours. */
uint64_t kvc_timeline_address(const struct kvc_cuda *cuda, uint32_t timeline);

#endif
