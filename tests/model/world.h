/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon's books and the model side by side: a small pool with few hashes, its engines and their jobs,
 * and a log of the last operations. Engine e of the model is engine[e] of the daemon.
 */
#ifndef KVPOOL_TEST_WORLD_H
#define KVPOOL_TEST_WORLD_H

#include "support.h"

#include "daemon/check.h"
#include "daemon/engine.h"
#include "daemon/pool.h"

#include "model.h"

#define WORLD_LOG 30
#define WORLD_LOG_BYTES 400

enum job_kind { JOB_NONE, JOB_OPEN, JOB_GRANT, JOB_PUBLISH };

/* What an engine asked for and has not been answered yet. */
struct job {
	enum job_kind kind;
	struct kvd_open open;
	struct kvd_grant grant;
	struct kvd_publish publish;
	uint8_t hashes[MDL_ROW * KVW_MAX_HASH_BYTES];
	int hash[MDL_ROW];
	struct kvw_answer answers[2 * MDL_ROW];
	struct kvw_block_ref refs[MDL_ROW];
	/* The model's view of the progress. */
	uint64_t hold; /* id; 0: none */
	int slices;
	int pinned;
	int granted[MDL_ROW];
	int granted_count;
	int published;
	int duplicates;
	bool failing;         /* it has begun to give back */
	uint64_t clock;       /* the pool's, before the slice */
	bool match_is_over;   /* blocks were granted */
	bool nothing_more;    /* at the end of the last slice nothing further could be matched */
	bool short_of_blocks; /* at the end of the last slice the pool had too few blocks for the rest */
	bool short_of_quota;  /* the same of the tenant's quota */
};

struct world {
	uint64_t seed;
	struct kvt_rng rng;
	uint64_t op;
	struct mdl model;
	struct kvd_pool *pool;
	void *state;
	void *directory;
	size_t directory_bytes;
	struct kvd_engine *engine[MDL_ENGINES];
	struct job job[MDL_ENGINES];
	uint32_t idle[MDL_ENGINES]; /* slices of work since the last that changed something */
	struct kvd_tenant tenant[MDL_TENANTS];
	int tenants;
	int namespaces;
	uint64_t next_session;
	/*
	 * The hashes in use: a tree, so that chains meet; sometimes ignored by an engine that makes its own.
	 */
	int hashes;
	int hash_parent[MDL_HASHES];
	uint32_t hash_bytes;
	uint8_t hash[MDL_HASHES][KVW_MAX_HASH_BYTES];
	bool unchained;              /* clients may publish any hash anywhere */
	bool untouched[MDL_ENGINES]; /* no operation is made for it */
	bool blind;                  /* something is spoiled: don't compare */
	bool check_each;             /* run the deep check after every operation */
	char log[WORLD_LOG][WORLD_LOG_BYTES];
	uint64_t logged;
};

/* A pool whose sizes, limits and hashes are drawn from the seed. */
void world_create(struct world *w, uint64_t seed);
void world_destroy(struct world *w);

uint64_t world_below(struct world *w, uint64_t bound);
bool world_chance(struct world *w, unsigned percent);
/* A new line of the log, and more text for it. */
void world_log(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
void world_log_more(struct world *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Prints seed, operation and log, then fails the test. */
_Noreturn void world_fail(struct world *w, const char *what);
/* Fails when the model has found a fault. */
void world_judge(struct world *w);
const char *world_error(int rc);

/* -------- compare.c: every observable against the model */
void world_compare(struct world *w);

/* -------- follow.c: tells the model what a slice of work has done */
void follow_progress(struct world *w, int e, uint32_t budget, int rc);
void follow_teardown(struct world *w, int e, uint32_t budget, int rc);
/* The daemon's hold of this id, or NULL. */
struct kvd_hold *seen_hold(const struct world *w, uint64_t id);
/* Drops the last reference. */
void follow_drop(struct world *w, struct mdl_hold *hold);
/* Blocks whose generation has risen: grants, in any order. Their ids go to out; how many. */
int follow_grants(struct world *w, int e, int *out);

/* -------- jobs.c */
void job_step(struct world *w, int e, uint32_t budget);
void job_abort(struct world *w, int e);

/* -------- publish.c */
void publish_slice(struct world *w, int e, uint32_t budget);

/* -------- ops.c */
/* One random operation, followed by the model. */
void world_operate(struct world *w);
/* Ends every engine and takes all blocks out, by the order of their release. */
void world_drain(struct world *w);

#endif
