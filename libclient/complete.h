/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVPOOL_LIBCLIENT_COMPLETE_H
#define KVPOOL_LIBCLIENT_COMPLETE_H

struct kvp_client;

/* Takes every answer that is there, at most a ring's worth. Under the lock. A broken one breaks the client. */
void kvc_complete_all(struct kvp_client *client);

#endif
