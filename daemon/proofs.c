/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spacing of questions to a pool's lock bytes.
 */
#include "proofs.h"

bool kvd_proofs_allowed(const struct kvd_proofs *proofs, uint64_t now_us)
{
	return now_us >= proofs->next_us;
}

void kvd_proofs_spent(struct kvd_proofs *proofs, uint64_t now_us, uint64_t took_ns)
{
	proofs->spent_ns += took_ns;
	if (proofs->spent_ns < KVD_PROOFS_BURST_NS)
		return;
	proofs->next_us = now_us + proofs->spent_ns / 1000u * KVD_PROOFS_PAUSE;
	proofs->spent_ns = 0;
}
