/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The specification of kvk_mla_plan(). The walk hands out blocks of sequences, one after the other, until a
 * part's budget is used up; what is left of a sequence goes to the next part as its next split. It is
 * integer work over batch + parts items, so there is no faster version.
 */
#include "ref.h"

/* Where the walk stands. */
struct walk {
	int32_t sequence;
	int32_t block;   /* of that sequence */
	int32_t split;   /* of that sequence */
	int32_t partial; /* running count of splits of all sequences before it */
};

/* An empty sequence costs one block too: somebody must write its output. */
static int32_t block_count(const struct kvk_mla_plan_params *p, int32_t sequence)
{
	int32_t len = p->lens[sequence];

	return len > 0 ? (len - 1) / p->block_tokens + 1 : 1;
}

static int64_t budget_per_part(const struct kvk_mla_plan_params *p)
{
	int64_t total = 0;

	for (int32_t i = 0; i < p->batch; i++)
		total += (int64_t)block_count(p, i) + p->overhead;
	return (total + p->parts - 1) / p->parts + p->overhead;
}

static void walk_part(const struct kvk_mla_plan_params *p, struct walk *walk, int64_t budget)
{
	while (walk->sequence < p->batch) {
		int64_t cost = (int64_t)block_count(p, walk->sequence) - walk->block + p->overhead;

		if (budget < cost) {
			if (budget > p->overhead) {
				walk->block += (int32_t)(budget - p->overhead);
				walk->split++;
			}
			return;
		}
		budget -= cost;
		walk->partial += walk->split + 1;
		walk->sequence++;
		p->num_splits[walk->sequence] = walk->partial;
		walk->block = 0;
		walk->split = 0;
	}
}

/* The end, inclusive in sequences and exclusive in blocks, from where the walk stopped. */
static void set_end(const struct kvk_mla_plan_params *p, const struct walk *walk,
		    struct kvk_mla_plan_part *part)
{
	const int32_t last = walk->block > 0 ? walk->sequence : walk->sequence - 1;

	part->end_seq = last;
	part->end_block = walk->block;
	if (walk->block == 0)
		part->end_block = last < 0 || p->lens[last] <= 0 ? 0 : block_count(p, last);
	part->last_is_split = last >= 0 && p->lens[last] > 0 && part->end_block != block_count(p, last);
}

static void plan_part(const struct kvk_mla_plan_params *p, struct walk *walk, int64_t budget,
		      struct kvk_mla_plan_part *part)
{
	*part = (struct kvk_mla_plan_part){.begin_seq = walk->sequence,
					   .begin_block = walk->block,
					   .begin_split = walk->split,
					   .first_is_split = walk->block != 0};
	walk_part(p, walk, budget);
	set_end(p, walk, part);
	if (part->begin_seq == part->end_seq)
		part->first_is_split = part->last_is_split = part->first_is_split || part->last_is_split;
}

int kvk_mla_plan_ref(const struct kvk_mla_plan_params *params)
{
	struct kvk_mla_plan_params p;
	struct walk walk = {0};
	int ret = kvk_prepare_mla_plan(params, &p);
	int64_t budget;

	if (ret <= 0)
		return ret;
	budget = budget_per_part(&p);
	p.num_splits[0] = 0;
	for (int32_t i = 0; i < p.parts; i++)
		plan_part(&p, &walk, budget, p.plan + i);
	return 0;
}

int32_t kvk_mla_plan_parts(int32_t units, int32_t s_q, int32_t heads, int sparse)
{
	const int64_t groups = (int64_t)s_q * (sparse ? heads / 64 : heads);
	int64_t parts;

	if (sparse)
		parts = units / (groups > 0 ? groups : s_q > 0 ? s_q : 1);
	else
		parts = units / (groups > 0 ? (groups + 63) / 64 : 1);
	return parts > 0 ? (int32_t)parts : 1;
}
