/* SPDX-License-Identifier: Apache-2.0 */
/*
 * CHECK and FLUSH: jobs over whole pools, in slices of a few hundred blocks a turn. They wait in one list;
 * the first runs. A job belongs to the session whose waiting request asked for it, and ends with it.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/error.h>

#include "admin.h"
#include "check.h"

/* Blocks of a slice: far below a turn's time. */
#define SLICE_BLOCKS 256u

struct kvd_admin_job {
	struct kvd_admin_job *next;
	struct kvd_server *server;
	bool (*slice)(struct kvd_admin_job *job); /* true: this pool is done */
	uint32_t pool;
	uint32_t end; /* pools [pool .. end) are still to be done */
	int error;
	/* FLUSH */
	bool started;
	uint64_t left; /* blocks to free in this pool: those that come meanwhile are not waited for */
	struct kvw_msg_FLUSH_OK flushed;
	/* CHECK */
	struct kvd_check *check;
	struct kvd_check_result result;
};

static struct kvd_served_pool *pool_of(const struct kvd_admin_job *job)
{
	return &job->server->pools[job->pool];
}

/* -------------------------------------------------------------- slices */

static bool flush_slice(struct kvd_admin_job *job)
{
	struct kvd_pool *pool = pool_of(job)->pool;
	uint32_t i;

	if (!job->started)
		job->left = pool->evictable;
	job->started = true;
	for (i = 0; i < SLICE_BLOCKS && job->left; i++) {
		if (!kvd_pool_flush_one(pool))
			job->left = 0;
		else {
			job->left--;
			job->flushed.freed++;
		}
	}
	if (job->left)
		return false;
	job->flushed.still_referenced += pool->counts[KVW_BLOCK_CACHED] - pool->evictable;
	job->flushed.pending += pool->counts[KVW_BLOCK_PENDING];
	job->started = false;
	return true;
}

static void keep_result(struct kvd_admin_job *job, const struct kvd_check_result *result)
{
	uint32_t room = KVD_CHECK_TEXTS - job->result.texts;
	uint32_t texts = result->texts < room ? result->texts : room;

	job->result.blocks += result->blocks;
	job->result.faults += result->faults;
	memcpy(job->result.text[job->result.texts], result->text, texts * sizeof(result->text[0]));
	job->result.texts += texts;
}

static void end_check(struct kvd_admin_job *job)
{
	if (job->check)
		kvd_check_end(job->check);
	job->check = NULL;
}

static bool check_slice(struct kvd_admin_job *job)
{
	if (!job->check) {
		job->error = kvd_check_start(pool_of(job)->pool, &job->check);
		return job->error != 0;
	}
	if (!kvd_check_step(job->check, SLICE_BLOCKS))
		return false;
	keep_result(job, kvd_check_result(job->check));
	end_check(job);
	return true;
}

static bool job_done(const struct kvd_admin_job *job)
{
	return job->error || job->pool == job->end;
}

bool kvd_admin_jobs_work(struct kvd_server *server)
{
	struct kvd_admin_job *job = server->jobs;

	if (!job)
		return false;
	if (job->slice(job))
		job->pool++;
	/* A finished job leaves the list; its session's waiting request finds it done and answers. */
	if (job_done(job))
		server->jobs = job->next;
	return true;
}

/* -------------------------------------------------------------- jobs and their sessions */

static void append(struct kvd_server *server, struct kvd_admin_job *job)
{
	struct kvd_admin_job **link = &server->jobs;

	while (*link)
		link = &(*link)->next;
	*link = job;
}

void kvd_admin_job_cancel(struct kvd_session *session)
{
	struct kvd_admin_job *job = session->admin_job;
	struct kvd_admin_job **link = &session->server->jobs;

	if (!job)
		return;
	while (*link && *link != job)
		link = &(*link)->next;
	if (*link)
		*link = job->next;
	end_check(job);
	free(job);
	session->admin_job = NULL;
}

/* Of the named pool, or of all. 0: begun; -1: refused. */
static int begin(struct kvd_session *session, const struct kvw_envelope *request, struct kvw_text name,
		 bool (*slice)(struct kvd_admin_job *job))
{
	struct kvd_server *server = session->server;
	const struct kvd_served_pool *pool = NULL;
	struct kvd_admin_job *job;

	if (name.length) {
		pool = kvd_session_find_pool(session, request, name);
		if (!pool)
			return -1;
	}
	job = calloc(1, sizeof(*job));
	if (!job) {
		kvd_session_refuse(session, request, -ENOMEM, "no memory for a job of %zu bytes",
				   sizeof(*job));
		return -1;
	}
	job->server = server;
	job->slice = slice;
	job->pool = pool ? pool->number : 0;
	job->end = pool ? pool->number + 1 : server->config->pool_count;
	session->admin_job = job;
	append(server, job);
	server->busy = true;
	return 0;
}

/* 1: wait; 0: refused; 2: the job is done. */
static int begin_or_look(struct kvd_session *session, const struct kvw_envelope *request,
			 struct kvw_text name, bool (*slice)(struct kvd_admin_job *job))
{
	const struct kvd_admin_job *job = session->admin_job;

	if (!job)
		return begin(session, request, name, slice) ? 0 : 1;
	if (!job_done(job))
		return 1;
	if (!job->error)
		return 2;
	kvd_session_refuse(session, request, job->error, "pool '%s': the job could not be done: %s",
			   pool_of(job)->config->name, strerror(-job->error));
	kvd_admin_job_cancel(session);
	return 0;
}

static void fill_texts(void *reply, const void *items, uint32_t n)
{
	((struct kvw_msg_CHECK_OK *)reply)->texts = kvw_list_of(items, n);
}

static void answer_check(struct kvd_session *session, const struct kvw_envelope *request)
{
	const struct kvd_check_result *result = &session->admin_job->result;
	struct kvw_item_TEXT texts[KVD_CHECK_TEXTS];
	struct kvw_msg_CHECK_OK reply = {.blocks = result->blocks, .faults = result->faults};
	uint32_t i;

	for (i = 0; i < result->texts; i++)
		texts[i].text = kvw_text_of(result->text[i]);
	kvd_admin_reply_page(session, request, &reply, texts, result->texts, fill_texts);
}

int kvd_request_check(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message)
{
	int ret = begin_or_look(session, request, message->CHECK.pool, check_slice);

	if (ret != 2)
		return ret;
	answer_check(session, request);
	kvd_admin_job_cancel(session);
	return 0;
}

int kvd_request_flush(struct kvd_session *session, const struct kvw_envelope *request,
		      const union kvw_any *message)
{
	int ret = begin_or_look(session, request, message->FLUSH.pool, flush_slice);

	if (ret != 2)
		return ret;
	kvd_session_reply(session, request, &session->admin_job->flushed);
	kvd_admin_job_cancel(session);
	return 0;
}
