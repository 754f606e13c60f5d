/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVPOOL_LIBCLIENT_ATTACH_H
#define KVPOOL_LIBCLIENT_ATTACH_H

#include <stdbool.h>

struct kvp_client;

/* Undoes kvp_attach(), also a half-done one, and an engine's batch. In a forked child the mappings are not there and left alone. */
void kvc_detach(struct kvp_client *client, bool forked);

#endif
