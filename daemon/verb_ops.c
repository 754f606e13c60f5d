/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs: each validates its record, reads its arrays into scratch, runs the engine's operation in
 * stretches, and stores its answers before it is completed. `verb->phase` says where it is, `verb->done` how
 * far in that phase.
 */
#include "verb_ops.h"

#include <errno.h>
#include <string.h>

#include <kvpool/error.h>

enum phase { PHASE_READ, PHASE_RUN, PHASE_WRITE };

#define PLANE_SET_BITS (0xffu << KVW_REQUEST_PLANE_SET_SHIFT)

static uint32_t smaller(uint64_t a, uint64_t b)
{
	return (uint32_t)(a < b ? a : b);
}

static void next_phase(struct kvd_verb *verb, enum phase phase)
{
	verb->phase = phase;
	verb->done = 0;
}

static int fail_tables(struct kvd_verb *verb, int error)
{
	verb->completion.status = error;
	return KVD_VERB_TABLES;
}

/* Byte offset of entry `column` of row `row` in an area of `entry_bytes` an entry. */
static uint64_t row_offset(const struct kvd_attachment *attachment, uint64_t area, uint32_t row,
			   uint32_t column, uint32_t entry_bytes)
{
	return area + ((uint64_t)row * attachment->memory->tables_params.row_blocks + column) * entry_bytes;
}

/* first and count inside one row. */
static bool in_row(const struct kvd_attachment *attachment, const struct kvw_request *request)
{
	const struct kvw_tables_params *params = &attachment->memory->tables_params;

	return request->row < params->rows && request->first <= params->row_blocks &&
	       request->count <= params->row_blocks - request->first;
}

/* -------------------------------------------------------------- reading and answering, a chunk at a time */

/* The row's hashes [first .. first + count) into scratch. 1: all there; 0: more; -EIO and the like. */
static int read_hashes(struct kvd_attachment *attachment, struct kvd_verb *verb, uint32_t first,
		       uint32_t count)
{
	const struct kvd_attach_memory *memory = attachment->memory;
	uint32_t hash_bytes = memory->tables_params.hash_bytes;
	uint32_t chunk = smaller(count - verb->done, KVD_STRETCH_BLOCKS * 2);
	uint64_t offset = row_offset(attachment, memory->tables_layout.hashes, verb->request.row,
				     first + verb->done, hash_bytes);
	int ret = kvd_segment_read(&memory->tables, offset,
				   memory->scratch.hashes + (size_t)verb->done * hash_bytes,
				   (size_t)chunk * hash_bytes);

	if (ret)
		return ret;
	verb->done += chunk;
	return verb->done == count;
}

/* One chunk of the presented blocks: ids and generations lie apart in the tables. */
static int read_block_refs(struct kvd_attachment *attachment, const struct kvd_verb *verb, uint32_t at,
			   uint32_t count)
{
	const struct kvd_attach_memory *memory = attachment->memory;
	uint32_t column = verb->request.first + at;
	int32_t ids[KVD_STRETCH_BLOCKS * 2];
	uint64_t generations[KVD_STRETCH_BLOCKS * 2];
	uint32_t i;
	int ret;

	ret = kvd_segment_read(
		&memory->tables,
		row_offset(attachment, memory->tables_layout.ids, verb->request.row, column, sizeof(ids[0])),
		ids, count * sizeof(ids[0]));
	if (!ret)
		ret = kvd_segment_read(&memory->tables,
				       row_offset(attachment, memory->tables_layout.generations,
						  verb->request.row, column, sizeof(generations[0])),
				       generations, count * sizeof(generations[0]));
	for (i = 0; !ret && i < count; i++)
		memory->scratch.blocks[at + i] =
			(struct kvw_block_ref){.id = ids[i], .generation = generations[i]};
	return ret;
}

/*
 * Atomic by words, since the client reads them when it likes; relaxed, since the completion, which is
 * released after them, is what announces them.
 */
static void store_answer(struct kvw_answer *to, const struct kvw_answer *from)
{
	_Atomic uint64_t *words = (_Atomic uint64_t *)(void *)to;
	uint64_t copy[sizeof(*from) / sizeof(uint64_t)];
	uint32_t i;

	memcpy(copy, from, sizeof(*from));
	for (i = 0; i < sizeof(copy) / sizeof(copy[0]); i++)
		atomic_store_explicit(&words[i], copy[i], memory_order_relaxed);
}

/*
 * The last phase of every verb with answers: [0 .. count) of scratch to where the record wants them, which
 * begin_verb() in verbs.c has found to be inside. KVD_VERB_DONE: all there.
 */
static int run_write(struct kvd_attachment *attachment, struct kvd_verb *verb, uint32_t count)
{
	const struct kvd_attach_memory *memory = attachment->memory;
	struct kvw_answer *out = (struct kvw_answer *)memory->answers.memory + verb->request.answers;
	uint32_t end = verb->done + smaller(count - verb->done, KVD_STRETCH_BLOCKS * 2);

	for (; verb->done < end; verb->done++)
		store_answer(&out[verb->done], &memory->scratch.answers[verb->done]);
	return verb->done == count ? KVD_VERB_DONE : KVD_VERB_MORE;
}

/* -------------------------------------------------------------- OPEN */

static int begin_open(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	const struct kvw_tables_params *params = &attachment->memory->tables_params;
	const struct kvw_request *request = &verb->request;

	if (request->row >= params->rows || request->count > params->row_blocks ||
	    request->first > params->row_blocks || request->want > params->row_blocks)
		return -EINVAL;
	verb->open = (struct kvd_open){
		.hashes = attachment->memory->scratch.hashes,
		.count = request->count,
		.max_match = request->first,
		.want = request->want,
		.max_new = request->most,
		.coming = request->flags & KVW_REQUEST_COMING,
		.answers = attachment->memory->scratch.answers,
	};
	verb->phase = request->count ? PHASE_READ : PHASE_RUN;
	return 0;
}

static int run_open_engine(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	struct kvd_open *open = &verb->open;
	int ret = kvd_open_step(attachment->engine, open, KVD_STRETCH_BLOCKS);

	if (ret != 1)
		return ret;
	verb->completion.hold = open->hold->id;
	verb->completion.matched = open->matched;
	verb->completion.granted = open->granted;
	next_phase(verb, PHASE_WRITE);
	return KVD_VERB_MORE;
}

static int run_open(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	int ret;

	if (verb->phase == PHASE_READ) {
		ret = read_hashes(attachment, verb, 0, verb->request.count);
		if (ret < 0)
			return fail_tables(verb, ret);
		if (ret)
			next_phase(verb, PHASE_RUN);
		return KVD_VERB_MORE;
	}
	if (verb->phase == PHASE_RUN)
		return run_open_engine(attachment, verb);
	return run_write(attachment, verb, verb->open.matched + verb->open.granted);
}

/* Once the engine is done with it, the hold is the engine's and goes the way of all its holds. */
static void abort_open(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	if (verb->phase == PHASE_RUN)
		kvd_open_abort(attachment->engine, &verb->open);
}

/* -------------------------------------------------------------- EXTEND and LEASE */

static int begin_grant(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	verb->grant = (struct kvd_grant){
		.count = verb->request.count,
		.answers = attachment->memory->scratch.answers,
	};
	verb->phase = verb->request.count ? PHASE_RUN : PHASE_WRITE;
	return 0;
}

static int begin_extend(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	return in_row(attachment, &verb->request) ? begin_grant(attachment, verb) : -EINVAL;
}

static int begin_lease(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	return verb->request.count > KVW_LEASE_ENTRIES ? -EINVAL : begin_grant(attachment, verb);
}

static int run_grant(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	int ret;

	if (verb->phase == PHASE_WRITE)
		return run_write(attachment, verb, verb->grant.granted);
	ret = kvd_grant_step(attachment->engine, &verb->grant, KVD_STRETCH_BLOCKS);
	if (ret != 1)
		return ret;
	verb->completion.granted = verb->grant.granted;
	next_phase(verb, PHASE_WRITE);
	return KVD_VERB_MORE;
}

static void abort_grant(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	if (verb->phase == PHASE_RUN)
		kvd_grant_abort(attachment->engine, &verb->grant);
}

/* -------------------------------------------------------------- PUBLISH */

static int begin_publish(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	const struct kvw_request *request = &verb->request;

	if (!in_row(attachment, request) || request->timeline >= KVW_TIMELINES)
		return -EINVAL;
	verb->publish = (struct kvd_publish){
		.hold = request->hold,
		.first = request->first,
		.count = request->count,
		.timeline = request->timeline,
		.step = request->step,
		.plane_set = KVD_MAIN_PLANE_SET,
		.blocks = attachment->memory->scratch.blocks,
		.hashes = attachment->memory->scratch.hashes,
		.answers = attachment->memory->scratch.answers,
	};
	/* Whether a block is complete now is decided by the newest word. */
	kvd_attachment_latch_one(attachment, request->timeline);
	verb->phase = request->count ? PHASE_READ : PHASE_RUN;
	return 0;
}

static int read_publish(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	uint32_t at = verb->done;
	int ret = read_hashes(attachment, verb, verb->request.first, verb->request.count);
	int refs;

	if (ret < 0)
		return fail_tables(verb, ret);
	refs = read_block_refs(attachment, verb, at, verb->done - at);
	if (refs)
		return fail_tables(verb, refs);
	if (ret)
		next_phase(verb, PHASE_RUN);
	return KVD_VERB_MORE;
}

/*
 * Those before the one that was refused stand, and are answered; the refusal is kept in the completion
 * meanwhile.
 */
static int run_publish_engine(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	int ret = kvd_publish_step(attachment->engine, &verb->publish, KVD_STRETCH_BLOCKS);

	if (!ret)
		return KVD_VERB_MORE;
	verb->completion.granted = verb->publish.done;
	verb->completion.matched = verb->publish.duplicates;
	verb->completion.status = ret < 0 ? ret : 0;
	next_phase(verb, PHASE_WRITE);
	return KVD_VERB_MORE;
}

static int run_publish(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	int ret;

	if (verb->phase == PHASE_READ)
		return read_publish(attachment, verb);
	if (verb->phase == PHASE_RUN)
		return run_publish_engine(attachment, verb);
	ret = run_write(attachment, verb, verb->publish.done);
	return ret == KVD_VERB_DONE && verb->completion.status ? verb->completion.status : ret;
}

/* -------------------------------------------------------------- TRUNCATE, RELEASE, RETURN */

static int begin_drop(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	if (verb->request.timeline >= KVW_TIMELINES)
		return -EINVAL;
	kvd_attachment_latch_one(attachment, verb->request.timeline);
	return 0;
}

static int done_or_error(int ret)
{
	return ret < 0 ? ret : KVD_VERB_DONE;
}

static int run_truncate(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	const struct kvw_request *request = &verb->request;

	return done_or_error(kvd_engine_truncate(attachment->engine, request->hold, request->first,
						 request->timeline, request->step));
}

static int run_release(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	const struct kvw_request *request = &verb->request;

	return done_or_error(
		kvd_engine_release(attachment->engine, request->hold, request->timeline, request->step));
}

static int begin_return(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	return verb->request.count > KVW_RETURN_ENTRIES ? -EINVAL : begin_drop(attachment, verb);
}

/* One chunk, up to the end of the area, where it goes on at its start. The client's `first` runs freely. */
static int run_return(struct kvd_attachment *attachment, struct kvd_verb *verb)
{
	const struct kvd_attach_memory *memory = attachment->memory;
	const struct kvw_request *request = &verb->request;
	uint32_t index = (request->first + verb->done) % KVW_RETURN_ENTRIES;
	uint32_t chunk =
		smaller(smaller(request->count - verb->done, KVD_STRETCH_BLOCKS), KVW_RETURN_ENTRIES - index);
	struct kvw_block_ref refs[KVD_STRETCH_BLOCKS];
	uint32_t i;
	int ret;

	ret = kvd_segment_read(&memory->tables,
			       memory->tables_layout.returns + (uint64_t)index * sizeof(refs[0]), refs,
			       chunk * sizeof(refs[0]));
	if (ret)
		return fail_tables(verb, ret);
	for (i = 0; i < chunk; i++) {
		ret = refs[i].zero ? -EINVAL
				   : kvd_engine_return(attachment->engine, refs[i].id, refs[i].generation,
						       request->timeline, request->step);
		if (ret < 0)
			return ret;
		verb->completion.granted = ++verb->done;
	}
	return verb->done == request->count ? KVD_VERB_DONE : KVD_VERB_MORE;
}

/* -------------------------------------------------------------- the table */

const struct kvd_verb_ops kvd_verb_table[] = {
	[KVW_REQUEST_OPEN] = {"OPEN", KVW_REQUEST_COMING | PLANE_SET_BITS, true, begin_open, run_open,
			      abort_open},
	[KVW_REQUEST_EXTEND] = {"EXTEND", 0, true, begin_extend, run_grant, abort_grant},
	[KVW_REQUEST_LEASE] = {"LEASE", 0, true, begin_lease, run_grant, abort_grant},
	[KVW_REQUEST_PUBLISH] = {"PUBLISH", PLANE_SET_BITS, true, begin_publish, run_publish, NULL},
	[KVW_REQUEST_TRUNCATE] = {"TRUNCATE", 0, false, begin_drop, run_truncate, NULL},
	[KVW_REQUEST_RELEASE] = {"RELEASE", 0, false, begin_drop, run_release, NULL},
	[KVW_REQUEST_RETURN] = {"RETURN", 0, false, begin_return, run_return, NULL},
};
const uint32_t kvd_verb_count = sizeof(kvd_verb_table) / sizeof(kvd_verb_table[0]);

uint64_t kvd_verb_wanted(const struct kvd_verb *verb)
{
	return verb->request.type == KVW_REQUEST_OPEN ? verb->request.want : verb->request.count;
}
