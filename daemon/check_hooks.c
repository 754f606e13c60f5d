/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keeps the sums of a running deep check right beside live operations: a block that the check has
 * passed is taken out of the sums before it changes and put back after; so are the references of holds
 * that it has counted.
 */
#include "check_internal.h"

static void add(uint32_t *sum, int sign)
{
	*sum += (uint32_t)sign;
}

void kvd_check_sum(struct kvd_check *check, int32_t id, int sign)
{
	const struct kvd_block *block = kvd_block(check->pool, id);

	/* A damaged block is in no sum; it has been named. */
	if (block->record.state >= KVW_BLOCK_STATES || block->list >= KVD_LIST_KINDS)
		return;
	if (kvd_pool_is_data(check->pool, id))
		add(&check->states[block->record.state], sign);
	add(&check->lists[block->list], sign);
	if (block->list == KVD_LIST_OWNED && block->owner)
		add(&block->owner->check.owned[block->record.state], sign);
	if (block->indexed)
		add(&check->indexed, sign);
	if (block->indexed && !block->listed)
		add(&check->left_out, sign);
}

void kvd_check_before(struct kvd_pool *pool, int32_t id)
{
	if ((uint32_t)id < pool->check->passed)
		kvd_check_sum(pool->check, id, -1);
}

void kvd_check_after(struct kvd_pool *pool, int32_t id)
{
	if ((uint32_t)id < pool->check->passed)
		kvd_check_sum(pool->check, id, 1);
}

bool kvd_check_hold_is_counted(const struct kvd_check *check, const struct kvd_hold *hold)
{
	return hold->check_round == check->round;
}

void kvd_check_hold_done(struct kvd_check *check, struct kvd_hold *hold)
{
	hold->check_round = check->round;
	hold->engine->check.holds++;
}

/* Empty, so counted. It is linked at the front, where the check does not come any more. */
void kvd_check_hold_created(struct kvd_hold *hold)
{
	struct kvd_check *check = hold->engine->pool->check;

	if (check)
		kvd_check_hold_done(check, hold);
}

void kvd_check_hold_destroyed(struct kvd_hold *hold)
{
	struct kvd_check *check = hold->engine->pool->check;

	if (!check)
		return;
	if (kvd_check_hold_is_counted(check, hold))
		hold->engine->check.holds--;
	if (check->hold != hold)
		return;
	check->hold = hold->next;
	check->position = 0;
}

void kvd_check_hold_pushed(struct kvd_hold *hold)
{
	struct kvd_check *check = hold->engine->pool->check;

	if (!check || !kvd_check_hold_is_counted(check, hold))
		return;
	check->counted[hold->blocks[hold->length - 1]]++;
	hold->engine->check.references++;
}

void kvd_check_hold_popped(struct kvd_hold *hold, int32_t id)
{
	struct kvd_check *check = hold->engine->pool->check;

	if (!check)
		return;
	if (!kvd_check_hold_is_counted(check, hold)) {
		if (check->hold != hold || hold->length >= check->position)
			return;
		check->position = hold->length;
	}
	check->counted[id]--;
	hold->engine->check.references--;
}

/* `to` follows `from` in the pool's list and has what `from` had beyond its new length. */
void kvd_check_hold_split(struct kvd_hold *from, struct kvd_hold *to)
{
	struct kvd_check *check = from->engine->pool->check;

	if (!check)
		return;
	if (kvd_check_hold_is_counted(check, from)) {
		kvd_check_hold_done(check, to);
	} else if (check->hold == from && from->length < check->position) {
		kvd_check_hold_done(check, from);
		check->hold = to;
		check->position -= from->length;
	}
}
