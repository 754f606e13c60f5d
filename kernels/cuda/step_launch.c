/* SPDX-License-Identifier: Apache-2.0 */
/* Launches around a decode step: length correction, block copies, the gather of table rows. */
#include "enqueue.h"

#include <errno.h>

KVK_STATIC_ASSERT(KVK_CUDA_CORRECT_BATCH * 3 * 4 < KVK_CUDA_CORRECT_SHARED,
		  "the kernel's arrays hold that many");

static int check_target(const int32_t *array, int32_t rows, const struct kvk_prep_plan_part *part)
{
	if (!array)
		return -ENOENT;
	return rows < part->last - part->first ? -ERANGE : 0;
}

static int check_part(const struct kvk_prep_correct_params *p, const struct kvk_prep_plan_part *part)
{
	int ret;

	if (part->sparse_flavour > 1)
		return -EINVAL;
	if (part->first < 0 || part->first > part->last || part->last > p->batch)
		return -ERANGE;
	if (part->sparse_flavour)
		return check_target(part->seqused_k, part->seqused_rows, part);
	ret = check_target(part->kv_segment_lens, part->kv_segment_rows, part);
	return ret ? ret : check_target(part->qo_offset, part->qo_offset_rows, part);
}

static int check_correct(struct kvk_prep_correct_params *p)
{
	if (p->flags & ~(KVK_PREP_NEWEST | KVK_CUDA_CORRECT_PAGES) || p->batch < 0 || p->page_tokens < 1 ||
	    p->table_width < 0 || p->room < 0 || p->part_count < 0 ||
	    (p->slot_bytes != 4 && p->slot_bytes != 8))
		return -EINVAL;
	if (p->part_count && (p->flags & KVK_PREP_NEWEST || !p->parts))
		return -EINVAL;
	if (p->batch > KVK_CUDA_CORRECT_BATCH || p->part_count > KVK_CUDA_CORRECT_PARTS)
		return -ENOTSUP;
	if (p->batch && !p->table_width)
		return -ERANGE;
	return 0;
}

static int check_correct_arrays(struct kvk_prep_correct_params *p)
{
	int ret = KVK_ALL_OF(
		KVK_ARRAY(p->qo_lens, 4, 1, (p->batch), NULL), KVK_ARRAY(p->staged, 4, 1, (p->batch), NULL),
		KVK_ARRAY(p->corrected, 4, 1, (p->batch), NULL),
		KVK_ARRAY(p->table, 4, 2, (p->batch, p->table_width), &p->table_stride),
		KVK_ARRAY(p->slots, p->slot_bytes, 1, (p->room), NULL),
		KVK_ARRAY(p->n_valid, 4, 1, (p->room), NULL), KVK_ARRAY(p->seq_lens, 4, 1, (p->batch), NULL));

	for (int32_t i = 0; i < p->part_count && !ret; i++)
		ret = check_part(p, &p->parts[i]);
	return ret;
}

int kvk_prep_correct_cuda(const struct kvk_cuda_device *device, const struct kvk_prep_correct_params *params,
			  int32_t valid_tokens, int32_t *faults)
{
	struct kvk_prep_correct_params p;
	struct kvk_cuda_correct_args args;
	int ret = kvk_take_params(&p, sizeof(p), params);

	ret = ret ? ret : kvk_cuda_check_device(device);
	ret = ret ? ret : check_correct(&p);
	if (!ret && valid_tokens < 0)
		ret = -EINVAL;
	if (ret || !p.batch)
		return ret;
	ret = check_correct_arrays(&p);
	if (ret)
		return ret;
	args = (struct kvk_cuda_correct_args){.qo_lens = p.qo_lens,
					      .staged = p.staged,
					      .corrected = p.corrected,
					      .table = p.table,
					      .slots = p.slots,
					      .n_valid = p.n_valid,
					      .seq_lens = p.seq_lens,
					      .cu_kv = p.cu_kv,
					      .faults = faults,
					      .table_stride = p.table_stride,
					      .batch = p.batch,
					      .page_tokens = p.page_tokens,
					      .table_width = p.table_width,
					      .room = p.room,
					      .slot_bytes = p.slot_bytes,
					      .newest = (p.flags & KVK_PREP_NEWEST) != 0,
					      .valid_tokens = valid_tokens ? valid_tokens : p.page_tokens,
					      .pages = (p.flags & KVK_CUDA_CORRECT_PAGES) != 0,
					      .part_count = p.part_count};
	for (int32_t i = 0; i < p.part_count; i++)
		args.parts[i] =
			(struct kvk_cuda_correct_part){.kv_segment_lens = p.parts[i].kv_segment_lens,
						       .qo_offset = p.parts[i].qo_offset,
						       .seqused_k = p.parts[i].seqused_k,
						       .first = p.parts[i].first,
						       .last = p.parts[i].last,
						       .sparse_flavour = p.parts[i].sparse_flavour != 0,
						       .kv_segment_rows = p.parts[i].kv_segment_rows,
						       .qo_offset_rows = p.parts[i].qo_offset_rows,
						       .seqused_rows = p.parts[i].seqused_rows};
	return kvk_cuda_enqueue(device, "kvk_cuda_correct", 1, 256, KVK_CUDA_CORRECT_SHARED, &args,
				sizeof(args));
}

/* The widest piece that divides everything. */
static int32_t piece_bytes(const struct kvk_block_copy_params *p)
{
	const uint64_t all = (uint64_t)(uintptr_t)p->from | (uint64_t)(uintptr_t)p->to |
			     (uint64_t)p->row_bytes | (uint64_t)p->from_stride_block |
			     (uint64_t)p->to_stride_block | (uint64_t)p->from_stride_outer |
			     (uint64_t)p->to_stride_outer | (uint64_t)p->from_stride_inner |
			     (uint64_t)p->to_stride_inner;

	return all % 16 == 0 ? 16 : all % 4 == 0 ? 4 : 1;
}

static int check_copy(const struct kvk_block_copy_params *p)
{
	if (p->flags || p->reserved || p->blocks < 0 || p->outer < 0 || p->inner < 0 || p->from_blocks < 0 ||
	    p->to_blocks < 0 || p->row_bytes < 0)
		return -EINVAL;
	if (!p->blocks || !p->outer || !p->inner || !p->row_bytes)
		return 0;
	return p->from && p->to && p->from_ids && p->to_ids ? 0 : -EINVAL;
}

int kvk_block_copy_cuda(const struct kvk_cuda_device *device, const struct kvk_block_copy_params *params)
{
	struct kvk_block_copy_params p;
	struct kvk_cuda_block_copy_args args;
	int64_t units;
	int ret = kvk_take_params(&p, sizeof(p), params);

	ret = ret ? ret : kvk_cuda_check_device(device);
	ret = ret ? ret : check_copy(&p);
	if (ret)
		return ret;
	args = (struct kvk_cuda_block_copy_args){.from = p.from,
						 .to = p.to,
						 .from_ids = p.from_ids,
						 .to_ids = p.to_ids,
						 .from_stride_block = p.from_stride_block,
						 .to_stride_block = p.to_stride_block,
						 .from_stride_outer = p.from_stride_outer,
						 .to_stride_outer = p.to_stride_outer,
						 .from_stride_inner = p.from_stride_inner,
						 .to_stride_inner = p.to_stride_inner,
						 .row_bytes = p.row_bytes,
						 .blocks = p.blocks,
						 .outer = p.outer,
						 .inner = p.inner,
						 .from_blocks = p.from_blocks,
						 .to_blocks = p.to_blocks,
						 .vector_bytes = piece_bytes(&p)};
	if (__builtin_mul_overflow((int64_t)p.blocks * p.outer, (int64_t)p.inner, &units) ||
	    __builtin_mul_overflow(units, p.row_bytes / args.vector_bytes, &units))
		return -EOVERFLOW;
	return kvk_cuda_enqueue(device, "kvk_cuda_block_copy", (units + 255) / 256, 256, 0, &args,
				sizeof(args));
}

int kvk_table_gather_cuda(const struct kvk_cuda_device *device, const struct kvk_table_gather_params *params)
{
	struct kvk_table_gather_params p;
	struct kvk_cuda_gather_args args;
	int ret = kvk_take_params(&p, sizeof(p), params);

	ret = ret ? ret : kvk_cuda_check_device(device);
	if (!ret && (p.flags || p.reserved || p.count < 0 || p.width < 0 || p.from_rows < 0 || p.room < 0 ||
		     (p.list && !p.indptr)))
		ret = -EINVAL;
	if (ret || !p.count || !p.width)
		return ret;
	ret = KVK_ALL_OF(KVK_ARRAY(p.from, 4, 2, (p.from_rows, p.width), &p.from_stride),
			 KVK_ARRAY(p.rows, 4, 1, (p.count), NULL),
			 KVK_ARRAY(p.to, 4, 2, (p.count, p.width), &p.to_stride));
	if (ret)
		return ret;
	args = (struct kvk_cuda_gather_args){.from = p.from,
					     .rows = p.rows,
					     .to = p.to,
					     .list = p.list,
					     .indptr = p.indptr,
					     .from_stride = p.from_stride,
					     .to_stride = p.to_stride,
					     .count = p.count,
					     .width = p.width,
					     .from_rows = p.from_rows,
					     .fill = p.fill,
					     .room = p.room};
	return kvk_cuda_enqueue(device, "kvk_cuda_table_gather", ((int64_t)p.count * p.width + 255) / 256,
				256, 0, &args, sizeof(args));
}

static int check_stage(const struct kvk_stage_params *p)
{
	if (p->flags || p->reserved || p->array_count < 0 || p->array_count > KVK_STAGE_ARRAYS ||
	    p->run_count < 0 || p->run_words < 0 || p->positions < 0 || p->rows < 0 || p->width < 0)
		return -EINVAL;
	for (int32_t i = 0; i < p->array_count; i++)
		if (p->arrays[i].words < 0 || (p->arrays[i].words && !(p->arrays[i].from && p->arrays[i].to)))
			return -EINVAL;
	return p->run_count && !(p->runs && p->from && p->to) ? -EINVAL : 0;
}

/* Blocks for the longest array, at least one a run. */
static int64_t stage_blocks(const struct kvk_cuda_device *device, const struct kvk_stage_params *p)
{
	int64_t most = p->run_words;
	int64_t blocks;

	for (int32_t i = 0; i < p->array_count; i++)
		most = p->arrays[i].words > most ? p->arrays[i].words : most;
	blocks = (most + 255) / 256;
	if (blocks < p->run_count)
		blocks = p->run_count;
	return blocks < 4ll * device->units ? blocks : 4ll * device->units;
}

int kvk_stage_cuda(const struct kvk_cuda_device *device, const struct kvk_stage_params *params)
{
	struct kvk_stage_params p;
	struct kvk_cuda_stage_args args;
	int64_t blocks;
	int ret = kvk_take_params(&p, sizeof(p), params);

	ret = ret ? ret : kvk_cuda_check_device(device);
	ret = ret ? ret : check_stage(&p);
	if (ret)
		return ret;
	blocks = stage_blocks(device, &p);
	if (!blocks)
		return 0;
	args = (struct kvk_cuda_stage_args){.runs = p.runs,
					    .from = p.from,
					    .to = p.to,
					    .from_stride = p.from_stride,
					    .to_stride = p.to_stride,
					    .run_count = p.run_count,
					    .array_count = p.array_count,
					    .positions = p.positions,
					    .rows = p.rows,
					    .width = p.width};
	for (int32_t i = 0; i < p.array_count; i++)
		args.arrays[i] = p.arrays[i];
	return kvk_cuda_enqueue(device, "kvk_cuda_stage", blocks, 256, 0, &args, sizeof(args));
}
