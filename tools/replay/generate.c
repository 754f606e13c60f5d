/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The chat generator. Where its numbers come from:
 *
 *   output   median 129, mean 211 tokens: Azure LLM inference trace 2023, conversation (Patel et al.,
 *            Splitwise, ISCA 2024). A log-normal of that median has that mean at sigma =
 *            sqrt(2 ln(211 / 129)) = 0.99; cut at 1,000, the trace's longest.
 *   prompt   median 1,020 tokens, 99 % below 4,142: the same trace. Made from parts: a system prompt, what
 *            was said, a message.
 *   reuse    36.6 % of the blocks of 512 tokens: Mooncake's conversation trace (Qin et al., FAST 2025) in an
 *            unbounded cache.
 *   rest     message, turns and system prompts are chosen so that prompts and reuse come out as above; they
 *            are not published.
 *
 * Logarithms and exponentials are computed here from additions and multiplications, so that the last bit of
 * another libm cannot change a trace.
 */
#include "generate.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "content.h"

#define OUTPUT_MEDIAN 129.0
#define OUTPUT_SIGMA 0.99
#define OUTPUT_MAX 1000u
#define MESSAGE_MEDIAN 230.0
#define MESSAGE_SIGMA 0.9
#define SYSTEM_MEDIAN 350.0
#define SYSTEM_SIGMA 0.35
#define SYSTEM_MIN 64u
/* A conversation goes on after a turn with this chance: 2.5 turns on average. */
#define NEXT_TURN 0.6
/* Mean time from one turn of a user to the next. */
#define THINK_MS 20000.0

struct system_prompt {
	uint32_t tokens;
	uint64_t first_id; /* of its full blocks */
};

struct user {
	uint64_t next_ms;
	uint32_t history; /* tokens said so far, system prompt included; 0: no conversation */
	uint64_t *ids;    /* of the conversation's full blocks */
	uint32_t id_count;
};

struct generator {
	const struct rep_generate *params;
	uint64_t state;
	uint64_t next_id;
	struct system_prompt *prompts;
	struct user *users;
};

static uint64_t draw(struct generator *g)
{
	g->state += 0x9e3779b97f4a7c15u;
	return rep_mix(g->state);
}

/* In (0, 1). */
static double uniform(struct generator *g)
{
	return ((double)(draw(g) >> 12) + 0.5) * 0x1p-52;
}

/* Natural logarithm of x > 0: halved into [0.7, 1.4], then the series of atanh. */
static double log_of(double x)
{
	double sum = 0;
	double base = 0;

	while (x > 1.4) {
		x /= 2;
		base += 0.69314718055994530942;
	}
	while (x < 0.7) {
		x *= 2;
		base -= 0.69314718055994530942;
	}
	x = (x - 1) / (x + 1);
	for (int k = 25; k > 0; k -= 2)
		sum = sum * x * x + 1.0 / k;
	return base + 2 * x * sum;
}

/* e^x: (e^(x / 1024))^1024, the former by its series. */
static double exp_of(double x)
{
	double sum = 1;

	x /= 1024;
	for (int k = 8; k > 0; k--)
		sum = 1 + x * sum / k;
	for (int i = 0; i < 10; i++)
		sum *= sum;
	return sum;
}

/* Twelve uniform numbers less six: normal enough, and without a sine. */
static double normal(struct generator *g)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += uniform(g);
	return sum;
}

static uint32_t log_normal(struct generator *g, double median, double sigma, uint32_t min, uint32_t max)
{
	double value = median * exp_of(sigma * normal(g));

	if (value < min)
		return min;
	return value > max ? max : (uint32_t)value;
}

/* System prompt k is taken with a weight of 1 / (k + 1). */
static uint32_t choose_prompt(struct generator *g)
{
	uint32_t count = g->params->system_prompts;
	double total = 0;
	double at;

	for (uint32_t i = 0; i < count; i++)
		total += 1.0 / (i + 1);
	at = uniform(g) * total;
	for (uint32_t i = 0; i < count; i++) {
		at -= 1.0 / (i + 1);
		if (at < 0)
			return i;
	}
	return count - 1;
}

static void begin_conversation(struct generator *g, struct user *user)
{
	const struct system_prompt *prompt = &g->prompts[choose_prompt(g)];

	user->history = prompt->tokens;
	user->id_count = 0;
	while (user->id_count < prompt->tokens / g->params->block_tokens) {
		user->ids[user->id_count] = prompt->first_id + user->id_count;
		user->id_count++;
	}
}

static struct user *next_user(struct generator *g)
{
	struct user *next = &g->users[0];

	for (uint32_t i = 1; i < g->params->users; i++)
		if (g->users[i].next_ms < next->next_ms)
			next = &g->users[i];
	return next;
}

/*
 * Ids of the prompt: full blocks keep theirs through the conversation, a partial last one is new in every
 * turn.
 */
static void add_ids(struct generator *g, struct user *user, const struct rep_request *request,
		    struct rep_trace *trace)
{
	uint32_t full = request->input_length / g->params->block_tokens;

	while (user->id_count < full)
		user->ids[user->id_count++] = g->next_id++;
	memcpy(trace->ids + trace->id_count, user->ids, full * sizeof(*user->ids));
	trace->id_count += full;
	if (request->id_count > full)
		trace->ids[trace->id_count++] = g->next_id++;
}

static int add_turn(struct generator *g, struct rep_trace *trace)
{
	const struct rep_generate *params = g->params;
	struct user *user = next_user(g);
	struct rep_request *request = &trace->requests[trace->count];
	uint32_t room;

	if (!user->history)
		begin_conversation(g, user);
	room = params->max_tokens - user->history;
	*request = (struct rep_request){
		.timestamp_ms = user->next_ms,
		.first_id = trace->id_count,
		.line = trace->count + 1,
		.input_length = user->history + log_normal(g, MESSAGE_MEDIAN, MESSAGE_SIGMA, 4, room),
		.output_length = log_normal(g, OUTPUT_MEDIAN, OUTPUT_SIGMA, 1, OUTPUT_MAX),
	};
	request->id_count = (request->input_length + params->block_tokens - 1) / params->block_tokens;
	if (rep_trace_reserve_ids(trace, request->id_count))
		return -ENOMEM;
	add_ids(g, user, request, trace);
	trace->count++;
	user->history = request->input_length + request->output_length;
	if (uniform(g) >= NEXT_TURN || user->history + OUTPUT_MAX >= params->max_tokens)
		user->history = 0;
	user->next_ms += (uint64_t)(-THINK_MS * log_of(uniform(g)));
	return 0;
}

static void init_prompts(struct generator *g)
{
	uint32_t longest = g->params->max_tokens / 2;

	for (uint32_t i = 0; i < g->params->system_prompts; i++) {
		g->prompts[i].tokens = log_normal(g, SYSTEM_MEDIAN, SYSTEM_SIGMA, SYSTEM_MIN, longest);
		g->prompts[i].first_id = g->next_id;
		g->next_id += g->prompts[i].tokens / g->params->block_tokens;
	}
}

static int init_users(struct generator *g)
{
	for (uint32_t i = 0; i < g->params->users; i++) {
		g->users[i].next_ms = (uint64_t)(uniform(g) * THINK_MS);
		g->users[i].ids =
			calloc(g->params->max_tokens / g->params->block_tokens + 1, sizeof(*g->users[i].ids));
		if (!g->users[i].ids)
			return -ENOMEM;
	}
	return 0;
}

static void generator_free(struct generator *g)
{
	for (uint32_t i = 0; g->users && i < g->params->users; i++)
		free(g->users[i].ids);
	free(g->users);
	free(g->prompts);
}

int rep_generate(const struct rep_generate *params, struct rep_trace *out)
{
	struct generator g = {.params = params, .state = rep_mix(params->seed ^ 0x6368617473u)};
	struct rep_trace trace = {.block_tokens = params->block_tokens, .capacity = params->requests};
	int ret = -ENOMEM;

	g.prompts = calloc(params->system_prompts, sizeof(*g.prompts));
	g.users = calloc(params->users, sizeof(*g.users));
	trace.requests = calloc(params->requests, sizeof(*trace.requests));
	if (g.prompts && g.users && trace.requests)
		ret = init_users(&g);
	if (!ret)
		init_prompts(&g);
	while (!ret && trace.count < params->requests)
		ret = add_turn(&g, &trace);
	generator_free(&g);
	if (ret)
		rep_trace_free(&trace);
	else
		*out = trace;
	return ret;
}
