/* SPDX-License-Identifier: Apache-2.0 */
/* Which query rows there are; see ref.h. */
#include "ref.h"

static void visit_padding(const struct kvk_ref_rows *rows, int32_t begin, int32_t end)
{
	for (int32_t row = begin; row < end; row++)
		rows->visit(rows->op, -1, row, 0);
}

static void visit_sequence(const struct kvk_ref_rows *rows, int32_t sequence)
{
	const int32_t first = kvk_first_row(rows->cu_q, rows->s_q, sequence);
	const int32_t count = kvk_first_row(rows->cu_q, rows->s_q, sequence + 1) - first;

	for (int32_t i = 0; i < count; i++)
		rows->visit(rows->op, sequence, first + i,
			    kvk_visible(rows->lens[sequence], count, i, rows->causal));
}

void kvk_ref_each_row(const struct kvk_ref_rows *rows)
{
	visit_padding(rows, 0, kvk_first_row(rows->cu_q, rows->s_q, 0));
	for (int32_t r = 0; r < rows->batch; r++)
		visit_sequence(rows, r);
	visit_padding(rows, kvk_first_row(rows->cu_q, rows->s_q, rows->batch), rows->rows);
}
