/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Products of a warpgroup, wgmma m64nNk16, after the PTX manual. The four warps meet at each. From the issue to the wait
 * the matrix unit has the results: the program's registers turn to NaN then, and what it reads of shared memory it
 * reads at the issue or at the wait, as a random number says: so a wait that is missing reads NaN, an operand
 * that comes too late or is overwritten too soon gives a wrong sum for half of the seeds.
 *
 * What threads write to shared memory reaches the unit behind a fence of the writer's: an issue while a thread of
 * the block has none is an error. Only what comes by cp.async or by kvk_store4() is seen here. Registers are handed
 * over by simt_group_begin().
 *
 * Descriptors, with the swizzle of 128 bytes, the only one here:
 *	bits 0 to 13	start address / 16
 *	bits 16 to 29	distance 1 / 16
 *	bits 32 to 45	distance 2 / 16
 *	bits 62, 63	1
 * Element (r, k) of A, and of B by columns, whose r is the column: start + r / 8 * distance 2 + r % 8 * 128 + 2 k bytes.
 * Element (k, n) of B by rows: start + n / 64 * distance 1 + k / 8 * distance 2 + k % 8 * 128 + n % 64 * 2. Then
 * address bits 4 to 6 are swapped by bits 7 to 9.
 */
#include "machine.h"
#include "simt.h"

#include <string.h>

#define ROWS 64
#define STEPS 16

struct group_product {
	struct simt_group_product product;
	float *c;
};

static const float nan_of_the_unit = __builtin_nanf("");

static uint32_t field(uint64_t descriptor, int bit)
{
	return static_cast<uint32_t>(descriptor >> bit & 0x3fff) * 16;
}

static float element(const struct simt_group_product *product, uint32_t at)
{
	const struct simt_machine *m = simt_machine_now;
	const uint32_t swapped = at ^ (at >> 3 & 0x70);
	uint16_t code;

	if (swapped + sizeof(code) > m->launch->shared_bytes) {
		simt_fail("a warpgroup's operand at byte %u of %llu of shared memory", swapped,
			  (unsigned long long)m->launch->shared_bytes);
		return 0;
	}
	memcpy(&code, m->shared + swapped, sizeof(code));
	return product->widen(code);
}

static void read_by_columns(const struct simt_group_product *product, uint64_t from, uint32_t rows,
			    float (*to)[STEPS])
{
	for (uint32_t r = 0; r < rows; r++)
		for (uint32_t k = 0; k < STEPS; k++)
			to[r][k] = element(product,
					   field(from, 0) + r / 8 * field(from, 32) + r % 8 * 128 + 2 * k);
}

static void read_by_rows(const struct simt_group_product *product, uint64_t from, uint32_t columns,
			 float (*to)[STEPS])
{
	for (uint32_t n = 0; n < columns; n++)
		for (uint32_t k = 0; k < STEPS; k++)
			to[n][k] =
				element(product, field(from, 0) + n / 64 * field(from, 16) +
							 k / 8 * field(from, 32) + k % 8 * 128 + n % 64 * 2);
}

/* Register 4 j + i of a thread: row 16 warp + lane / 4 + 8 (i / 2), column 8 j + lane % 4 * 2 + i % 2. */
static void multiply(struct simt_group *group, const struct simt_group_product *product)
{
	read_by_columns(product, product->a, ROWS, group->a);
	if (product->b_by_rows)
		read_by_rows(product, product->b, product->columns, group->b);
	else
		read_by_columns(product, product->b, product->columns, group->b);
	for (uint32_t t = 0; t < SIMT_GROUP_THREADS; t++) {
		const uint32_t lane = t % SIMT_LANES, first = t / SIMT_LANES * 16 + lane / 4;

		for (uint32_t i = 0; i < product->columns / 2; i++) {
			const float more = simt_dot16(group->a[first + i % 4 / 2 * 8],
						      group->b[i / 4 * 8 + lane % 4 * 2 + i % 2]);

			group->sum[t][i] = product->add ? group->sum[t][i] + more : more;
		}
	}
}

static struct simt_group *own_group(void)
{
	return &simt_machine_now->groups[simt_thread_index() / SIMT_GROUP_THREADS];
}

/* All threads of the group meet; the last one does it. */
static void meet(void (*operation)(struct simt_group *group), void *arguments, struct simt_where where,
		 const char *what)
{
	struct simt_machine *m = simt_machine_now;
	struct simt_group *group = own_group();
	const uint32_t own = simt_thread_index() % SIMT_GROUP_THREADS;
	const uint32_t first = simt_thread_index() - own;

	if (group->arrived && (group->operation != operation || !simt_same_where(group->where, where))) {
		simt_fail("warpgroup disagrees: %s at %s:%d while others wait at %s:%d", what, where.file,
			  where.line, group->where.file, group->where.line);
		simt_leave();
	}
	group->operation = operation;
	group->where = where;
	group->arguments[own] = arguments;
	if (++group->arrived < SIMT_GROUP_THREADS) {
		simt_wait(what, where);
		return;
	}
	group->arrived = 0;
	operation(group);
	if (m->failed)
		simt_leave();
	for (uint32_t i = 0; i < SIMT_GROUP_THREADS; i++)
		if (i != own)
			simt_make_ready(&m->threads[first + i]);
}

static void begin(struct simt_group *group)
{
	group->begun = true;
}

void simt_group_begin(const char *file, int line)
{
	meet(begin, nullptr, {file, line}, "wgmma.fence");
}

/* The registers become the unit's. */
static void take_registers(struct simt_group *group, uint32_t columns)
{
	for (uint32_t t = 0; t < SIMT_GROUP_THREADS; t++) {
		group->result[t] = static_cast<struct group_product *>(group->arguments[t])->c;
		for (uint32_t i = 0; i < columns / 2; i++) {
			group->sum[t][i] = group->result[t][i];
			group->result[t][i] = nan_of_the_unit;
		}
	}
	group->early = simt_random(simt_machine_now) & 1;
}

static const char *refusal(const struct simt_group *group, const struct simt_group_product *product)
{
	const struct group_product *first = static_cast<struct group_product *>(group->arguments[0]);

	if (!group->begun)
		return "a warpgroup's product without wgmma.fence since the last wait";
	if (simt_machine_now->unfenced)
		return "a warpgroup's product while a thread that wrote to shared memory has no "
		       "fence.proxy.async";
	if (product->a >> 62 != 1 || product->b >> 62 != 1)
		return "a descriptor of another swizzle than 128 bytes";
	if (group->product_count == SIMT_GROUP_PRODUCTS)
		return "more products of a warpgroup at once than are modelled";
	if (group->product_count &&
	    (group->result[0] != first->c || group->products[0].columns != product->columns))
		return "products of a warpgroup for two results at once, which is not modelled";
	for (uint32_t t = 1; t < SIMT_GROUP_THREADS; t++)
		if (memcmp(&static_cast<struct group_product *>(group->arguments[t])->product, product,
			   sizeof(*product)))
			return "threads of a warpgroup give different descriptors";
	return nullptr;
}

static void issue(struct simt_group *group)
{
	const struct simt_group_product *product =
		&static_cast<struct group_product *>(group->arguments[0])->product;
	const char *refused = refusal(group, product);

	if (refused) {
		simt_fail("%s, at %s:%d", refused, group->where.file, group->where.line);
		return;
	}
	if (!group->product_count)
		take_registers(group, product->columns);
	group->products[group->product_count++] = *product;
	if (group->early)
		multiply(group, product);
}

void simt_group_mma(float *c, uint32_t columns, uint64_t a, uint64_t b, bool b_by_rows, bool add,
		    float (*widen)(uint16_t code), const char *file, int line)
{
	struct group_product arguments;

	memset(&arguments, 0, sizeof(arguments)); /* compared as bytes */
	arguments.c = c;
	arguments.product.a = a;
	arguments.product.b = b;
	arguments.product.columns = columns;
	arguments.product.b_by_rows = b_by_rows;
	arguments.product.add = add;
	arguments.product.widen = widen;
	meet(issue, &arguments, {file, line}, "wgmma");
}

static void finish(struct simt_group *group)
{
	for (uint32_t i = 0; i < group->product_count && !group->early; i++)
		multiply(group, &group->products[i]);
	for (uint32_t t = 0; t < SIMT_GROUP_THREADS && group->product_count; t++)
		memcpy(group->result[t], group->sum[t], group->products[0].columns / 2 * sizeof(float));
	group->product_count = 0;
	group->begun = false;
}

void simt_group_wait(const char *file, int line)
{
	meet(finish, nullptr, {file, line}, "wgmma.wait_group");
}

void simt_shared_written(const void *to)
{
	struct simt_machine *m = simt_machine_now;

	if (!simt_is_shared(to, 1) || m->current->unfenced)
		return;
	m->current->unfenced = true;
	m->unfenced++;
}

void simt_shared_fence(void)
{
	struct simt_machine *m = simt_machine_now;

	m->unfenced -= m->current->unfenced;
	m->current->unfenced = false;
}

uint32_t simt_shared_offset(const void *at)
{
	return static_cast<uint32_t>(static_cast<const unsigned char *>(at) - simt_machine_now->shared);
}
