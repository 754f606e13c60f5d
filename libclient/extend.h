/* SPDX-License-Identifier: Apache-2.0 */
#ifndef KVPOOL_LIBCLIENT_EXTEND_H
#define KVPOOL_LIBCLIENT_EXTEND_H

#include <stdbool.h>

struct kvp_client;
struct kvp_seq;
struct kvc_op;
struct kvw_completion;

int kvc_extend_answer(struct kvp_client *client, const struct kvc_op *op,
		      const struct kvw_completion *completion);
/* Whether an extend is on its way. One that a daemon took with it is given up. Under the lock. */
bool kvc_extend_runs(struct kvp_seq *seq);
/* The sequence takes the blocks of an answered extend into its row. Under the lock. */
void kvc_extend_take(struct kvp_seq *seq);

#endif
