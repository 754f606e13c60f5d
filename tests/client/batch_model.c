/* SPDX-License-Identifier: Apache-2.0 */
#include "batch_model.h"

#include "support.h"

static void same(const char *array, uint32_t index, int64_t is, int64_t should)
{
	if (is != should) {
		print_error("%s[%u] is %lld, should be %lld\n", array, index, (long long)is,
			    (long long)should);
		fail();
	}
}

static int64_t up(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

static int64_t slot_at(const struct kvp_batch_view *view, uint32_t i)
{
	return view->slot_bytes == 4 ? ((const int32_t *)view->slot_mapping)[i]
				     : ((const int64_t *)view->slot_mapping)[i];
}

static void check_row(const struct model_params *params, const struct model_row *row, uint32_t r,
		      const struct kvp_batch_view *view)
{
	uint32_t j;

	for (j = 0; j < params->width; j++)
		same("block_table", r * params->width + j, view->block_table[r * params->width + j],
		     j < row->blocks ? row->ids[j] : params->pad_id);
	same("kv_lens", r, view->kv_lens[r], row->before + row->tokens);
	same("qo_lens", r, view->qo_lens[r], row->tokens);
	same("qo_offset", r, view->qo_offset[r], row->before);
}

/* Returns the query tokens and pages before the next row. */
static void check_tokens(const struct model_params *params, const struct model_row *row, uint32_t *token,
			 uint32_t *page, const struct kvp_batch_view *view)
{
	int64_t pages = up((int64_t)row->before + row->tokens, params->block_tokens);
	uint32_t j;

	for (j = 0; j < row->tokens; j++, (*token)++) {
		uint32_t at = row->before + j;

		same("slot_mapping", *token, slot_at(view, *token),
		     (int64_t)row->ids[at / params->block_tokens] * params->block_tokens +
			     at % params->block_tokens);
		same("n_valid", *token, view->n_valid[*token], up((int64_t)at + 1, params->valid_tokens));
	}
	for (j = 0; j < pages; j++, (*page)++)
		same("page_list", *page, view->page_list[*page], row->ids[j]);
}

static void check_padding(const struct model_params *params, uint32_t r, uint32_t *token,
			  const struct kvp_batch_view *view)
{
	uint32_t j;

	for (j = 0; j < params->width; j++)
		same("block_table", r * params->width + j, view->block_table[r * params->width + j],
		     params->pad_id);
	same("kv_lens", r, view->kv_lens[r], 0);
	same("qo_lens", r, view->qo_lens[r], 1);
	same("qo_offset", r, view->qo_offset[r], -1);
	same("slot_mapping", *token, slot_at(view, *token), -1);
	same("n_valid", *token, view->n_valid[*token], 0);
	(*token)++;
}

void model_check(const struct model_params *params, const struct model_row *rows, uint32_t n,
		 const struct kvp_batch_view *view)
{
	uint32_t all = n > params->pad_rows ? n : params->pad_rows;
	uint32_t token = 0;
	uint32_t page = 0;
	int64_t kv = 0;
	int64_t max = 0;
	uint32_t r;

	same("rows", 0, view->rows, all);
	same("table_width", 0, view->table_width, params->width);
	for (r = 0; r < all; r++) {
		same("cu_q", r, view->cu_q[r], token);
		same("cu_kv", r, view->cu_kv[r], kv);
		same("page_indptr", r, view->page_indptr[r], page);
		if (r >= n) {
			check_padding(params, r, &token, view);
			continue;
		}
		check_row(params, &rows[r], r, view);
		check_tokens(params, &rows[r], &token, &page, view);
		kv += rows[r].before + rows[r].tokens;
		if (rows[r].before + rows[r].tokens > max)
			max = rows[r].before + rows[r].tokens;
	}
	same("cu_q", all, view->cu_q[all], token);
	same("cu_kv", all, view->cu_kv[all], kv);
	same("page_indptr", all, view->page_indptr[all], page);
	same("tokens", 0, view->tokens, token);
	same("pages", 0, view->pages, page);
	same("max_kv_len", 0, view->max_kv_len, max);
}
