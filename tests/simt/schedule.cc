/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which thread runs next. Seed 0: warps and lanes in order. Odd seeds: any ready thread. Even ones: warps
 * by random priorities, the first one sometimes put last, so that one gets as far ahead as barriers allow.
 */
#include "machine.h"

uint64_t simt_random(struct simt_machine *machine)
{
	uint64_t z = machine->random += 0x9e3779b97f4a7c15u;

	z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
	z = (z ^ z >> 27) * 0x94d049bb133111ebu;
	return z ^ z >> 31;
}

static uint32_t lowest(uint32_t mask)
{
	return static_cast<uint32_t>(__builtin_ctz(mask));
}

static uint32_t random_bit(struct simt_machine *machine, uint32_t mask)
{
	uint32_t skip = static_cast<uint32_t>(simt_random(machine) % __builtin_popcount(mask));

	while (skip--)
		mask &= mask - 1;
	return lowest(mask);
}

void simt_shuffle_schedule(struct simt_machine *machine)
{
	for (uint32_t w = 0; w < machine->warp_count; w++)
		machine->priority[w] = static_cast<uint32_t>(simt_random(machine) >> 33);
}

static uint32_t foremost(struct simt_machine *machine)
{
	uint32_t best = lowest(machine->ready_warps);

	for (uint32_t w = best + 1; w < machine->warp_count; w++)
		if (machine->ready_warps >> w & 1 && machine->priority[w] > machine->priority[best])
			best = w;
	if (simt_random(machine) % 256 == 0)
		machine->priority[best] = static_cast<uint32_t>(simt_random(machine) >> 40);
	return best;
}

/* Index in the block of a ready thread; there is one. */
uint32_t simt_pick(struct simt_machine *machine)
{
	const uint64_t seed = machine->seed;
	uint32_t warp;

	if (!seed) {
		warp = lowest(machine->ready_warps);
		return warp * SIMT_LANES + lowest(machine->warps[warp].ready);
	}
	warp = seed & 1 ? random_bit(machine, machine->ready_warps) : foremost(machine);
	return warp * SIMT_LANES + random_bit(machine, machine->warps[warp].ready);
}
