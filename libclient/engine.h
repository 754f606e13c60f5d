/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of an attached engine: everything that later calls need, so that they allocate nothing.
 */
#ifndef KVPOOL_LIBCLIENT_ENGINE_H
#define KVPOOL_LIBCLIENT_ENGINE_H

#include <stdbool.h>

struct kvp_client;
struct kvc_engine;
struct kvc_plan;

/* Allocates what the plan needs for the client's pool; the shared segments come later. The private mapping goes into client->maps. */
int kvc_engine_create(struct kvp_client *client, const struct kvc_plan *plan, struct kvc_engine **out);
/* Points the engine at the mapped segments, and its rows at theirs. */
void kvc_engine_bind(struct kvp_client *client, struct kvc_engine *engine);
/* NULL is a no-op; also of a half-made one. Mappings are not its business. */
void kvc_engine_destroy(struct kvc_engine *engine, bool forked);

#endif
