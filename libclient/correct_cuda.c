/* SPDX-License-Identifier: Apache-2.0 */
/* Lengths that the device has corrected, in the arrays that were staged last. */
#include <errno.h>
#include <string.h>

#include <kvpool/prep.h>

#include "kernels/cuda/args.h"
#include "kernels/cuda/launch.h"

#include "batch.h"
#include "cuda.h"
#include "error.h"
#include "launch_cuda.h"
#include "params.h"
#include "stage_cuda.h"
#include "step_cuda.h"

static int check_rows(const char *name, uint32_t part, const int32_t *array, int32_t rows, int32_t requests,
		      int32_t tokens)
{
	if (!array)
		return kvc_fail(ENOENT,
				"part %u has no '%s', which this correction must write: give the array", part,
				name);
	if (rows != requests && rows != tokens)
		return kvc_fail(
			ERANGE,
			"part %u: '%s' has %d rows, %d requests with %d tokens want so many or so many", part,
			name, rows, requests, tokens);
	return 0;
}

static int check_part(const struct kvc_staging *staging, const struct kvk_prep_plan_part *part,
		      uint32_t index, uint32_t rows)
{
	int32_t requests, tokens;
	int ret;

	if (part->sparse_flavour > 1)
		return kvc_fail(EINVAL, "part %u: sparse_flavour is %u: 0 or 1", index, part->sparse_flavour);
	if (part->first < 0 || part->first > part->last || part->last > (int32_t)rows)
		return kvc_fail(ERANGE, "part %u has requests %d to %d, the step has %u", index, part->first,
				part->last, rows);
	requests = part->last - part->first;
	tokens = staging->cu_q[part->last] - staging->cu_q[part->first];
	if (part->sparse_flavour)
		return check_rows("seqused_k", index, part->seqused_k, part->seqused_rows, requests, tokens);
	ret = check_rows("kv_segment_lens", index, part->kv_segment_lens, part->kv_segment_rows, requests,
			 tokens);
	return ret ? ret
		   : check_rows("qo_offset", index, part->qo_offset, part->qo_offset_rows, requests, tokens);
}

static int check_numbers(const struct kvc_staging *staging, const struct kvp_correct_params *params)
{
	if (params->flags & ~KVP_CORRECT_NEWEST)
		return kvc_fail(EINVAL, "kvp_correct_params.flags has unknown bits %#x",
				params->flags & ~KVP_CORRECT_NEWEST);
	if (params->rows > staging->rows_end)
		return kvc_fail(EINVAL, "kvp_correct_params.rows is %u, no step had more than %u",
				params->rows, staging->rows_end);
	if (params->part_count > KVK_CUDA_CORRECT_PARTS)
		return kvc_fail(KVP_ELIMIT, "kvp_correct_params.part_count is %u, above %d",
				params->part_count, KVK_CUDA_CORRECT_PARTS);
	if (params->part_count && !params->parts)
		return kvc_fail(EINVAL, "kvp_correct_params.parts is NULL, part_count is %u",
				params->part_count);
	if (params->part_count && params->flags & KVP_CORRECT_NEWEST)
		return kvc_fail(EINVAL, "plans are given with KVP_CORRECT_NEWEST, which corrects none");
	return 0;
}

static int check_params(const struct kvc_staging *staging, const struct kvp_correct_params *params)
{
	uint32_t i;
	int ret = check_numbers(staging, params);

	for (i = 0; !ret && i < params->part_count; i++)
		ret = check_part(staging, &params->parts[i], i, params->rows);
	return ret;
}

static int check_batch(const struct kvp_batch *batch)
{
	const struct kvc_staging *staging;
	int ret = kvc_enter_cuda(batch->client);

	if (ret)
		return ret;
	staging = batch->client->engine->staging;
	if (!batch->staging || !staging->last)
		return kvc_fail(KVP_ESTATE, "no step of the batch was staged: kvp_batch_stage() first");
	if (!batch->client->cuda->kernels)
		return kvc_fail(ENOSYS, "this build has no kernels for a GPU: build with the CUDA toolkit");
	return 0;
}

static int launch(const struct kvp_batch *batch, const struct kvp_correct_params *params)
{
	struct kvc_staging *staging = batch->client->engine->staging;
	const struct kvp_batch_view *view = &staging->view;
	struct kvk_prep_correct_params correct = {
		.size = sizeof(correct),
		.flags = KVK_CUDA_CORRECT_PAGES | (params->flags & KVP_CORRECT_NEWEST ? KVK_PREP_NEWEST : 0),
		.batch = (int32_t)params->rows,
		.page_tokens = (int32_t)batch->block_tokens,
		.table_width = (int32_t)batch->width,
		.room = (int32_t)(batch->max_tokens + batch->max_seqs),
		.slot_bytes = batch->slot_bytes,
		.part_count = (int32_t)params->part_count,
		.qo_lens = view->qo_lens,
		.staged = (const int32_t *)(uintptr_t)(staging->memory + staging->staged_at),
		.corrected = params->lens ? params->lens : view->kv_lens,
		.table = view->block_table,
		.parts = params->parts,
		.slots = view->slot_mapping,
		.n_valid = view->n_valid,
		.seq_lens = view->kv_lens,
		.cu_kv = view->cu_kv,
		.table_stride = batch->width,
	};
	struct kvc_cuda_launcher launcher;
	bool pushed;
	int ret = kvc_cuda_enter(batch->client->cuda, &pushed);

	if (ret)
		return ret;
	kvc_cuda_launcher_init(&launcher, batch->client->cuda->kernels, params->stream);
	ret = kvk_prep_correct_cuda(&launcher.device, &correct, (int32_t)batch->valid_tokens, NULL);
	kvc_cuda_leave(batch->client->cuda, pushed);
	return ret;
}

int kvp_batch_correct_lens(struct kvp_batch *batch, const struct kvp_correct_params *params)
{
	struct kvp_correct_params own;
	int ret = kvc_params_read(&own, sizeof(own), params, "kvp_correct_params");

	if (!ret)
		ret = check_batch(batch);
	if (ret)
		return ret;
	if (!own.rows)
		own.rows = batch->client->engine->staging->view.rows;
	ret = check_params(batch->client->engine->staging, &own);
	return ret ? ret : launch(batch, &own);
}
