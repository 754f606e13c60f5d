/* SPDX-License-Identifier: Apache-2.0 */
#include "report.h"

#include <inttypes.h>
#include <stdio.h>

#include "foe.h"

static const char *const friend_names[KVT_FRIENDS] = {"own pool", "same pool"};
static const char *const friend_keys[KVT_FRIENDS] = {"own_pool", "same_pool"};

void kvt_report_sum(struct kvt_report *report)
{
	uint32_t number;
	uint32_t mode;

	for (number = 0; number < KVT_FRIENDS; number++)
		for (mode = 0; mode < kvt_mode_count; mode++)
			kvt_latency_merge(&report->hostile[number],
					  &report->board->latency[number][KVT_PHASE_MODES + mode]);
}

uint64_t kvt_report_breaches(const struct kvt_report *report)
{
	uint64_t breaches = 0;
	uint32_t mode;

	for (mode = 0; mode < kvt_mode_count; mode++)
		breaches += report->board->modes[mode].breaches;
	return breaches;
}

double kvt_report_ratio(const struct kvt_report *report, enum kvt_friend number)
{
	double alone = kvt_latency_at(&report->board->latency[number][KVT_PHASE_ALONE], 990);

	return alone > 0 ? kvt_latency_at(&report->hostile[number], 990) / alone : 0;
}

/* -------------------------------------------------------------- the table */

static void print_mode(const struct kvt_report *report, uint32_t mode)
{
	const struct kvt_mode_row *row = &report->board->modes[mode];
	const struct kvt_latency *own = &report->board->latency[KVT_FRIEND_OWN_POOL][KVT_PHASE_MODES + mode];
	const struct kvt_latency *same =
		&report->board->latency[KVT_FRIEND_SAME_POOL][KVT_PHASE_MODES + mode];
	int i;

	printf("%-22s %9" PRIu64 " %8" PRIu64 " %12" PRIu64, kvt_modes[mode].name, row->sessions,
	       row->refused, row->bytes);
	for (i = 0; i < KVT_ENDINGS; i++)
		printf(" %8" PRIu64, row->endings[i]);
	printf(" %9.0f %9.0f  %s\n", kvt_latency_at(own, 990), kvt_latency_at(same, 990), row->error);
	if (row->breaches)
		printf("    BREACH (%" PRIu64 "): %s\n", row->breaches, row->breach);
}

static void print_modes(const struct kvt_report *report)
{
	uint32_t mode;

	printf("%-22s %9s %8s %12s", "mode", "sessions", "refused", "bytes");
#define X(name, text) printf(" %8s", text);
	KVT_ENDING_MAP(X)
#undef X
	printf(" %9s %9s  %s\n", "p99 own", "p99 same", "the last reason given");
	for (mode = 0; mode < kvt_mode_count; mode++)
		if (report->chosen[mode])
			print_mode(report, mode);
}

static void print_latency(const char *what, const struct kvt_latency *latency)
{
	printf("  %-28s %9u %9.0f %9.0f %9.0f\n", what, latency->cycles, kvt_latency_at(latency, 500),
	       kvt_latency_at(latency, 990), kvt_latency_at(latency, 1000));
}

static void print_friend(const struct kvt_report *report, enum kvt_friend number)
{
	printf("well-behaved client, %s; us\n  %-28s %9s %9s %9s %9s\n", friend_names[number], "", "cycles",
	       "p50", "p99", "worst");
	print_latency("alone", &report->board->latency[number][KVT_PHASE_ALONE]);
	print_latency("beside a hungry process", &report->board->latency[number][KVT_PHASE_HUNGRY]);
	print_latency("beside the hostile one", &report->hostile[number]);
	printf("  p99 is %.2f times its own alone; refused for want of quota: %u\n",
	       kvt_report_ratio(report, number), report->board->refusals[number]);
}

void kvt_report_table(const struct kvt_report *report)
{
	print_modes(report);
	print_friend(report, KVT_FRIEND_OWN_POOL);
	print_friend(report, KVT_FRIEND_SAME_POOL);
	printf("daemon (%s): descriptors %d -> %d, RSS %ld -> %ld KiB, sessions %u -> %u, longest turn "
	       "%" PRIu64 " us, of them %" PRIu64 " us in: %s\n",
	       report->event_loop, report->before.fds, report->after.fds, report->before.rss_kib,
	       report->after.rss_kib, report->before.sessions, report->after.sessions,
	       report->longest_turn_us, report->longest_part_us, report->longest_part);
	printf("log: %" PRIu64 " bytes; %" PRIu64 " sessions attached, %" PRIu64 " of them ended, %" PRIu64
	       " revoked, %" PRIu64 " without a reason, %" PRIu64 " twice\n",
	       report->audit.bytes, report->audit.attached, report->audit.ended, report->audit.revoked,
	       report->audit.without_reason, report->audit.twice);
}

/* -------------------------------------------------------------- JSON */

static void json_latency(const char *name, const struct kvt_latency *latency, const char *end)
{
	printf("\"%s\": {\"cycles\": %u, \"p50_us\": %.0f, \"p99_us\": %.0f, \"worst_us\": %.0f}%s", name,
	       latency->cycles, kvt_latency_at(latency, 500), kvt_latency_at(latency, 990),
	       kvt_latency_at(latency, 1000), end);
}

static void json_mode(const struct kvt_report *report, uint32_t mode)
{
	const struct kvt_mode_row *row = &report->board->modes[mode];

	printf("\"%s\": {\"sessions\": %" PRIu64 ", \"refused\": %" PRIu64 ", \"bytes\": %" PRIu64,
	       kvt_modes[mode].name, row->sessions, row->refused, row->bytes);
#define X(name, text) printf(", \"" text "\": %" PRIu64, row->endings[KVT_ENDING_##name]);
	KVT_ENDING_MAP(X)
#undef X
	printf(", \"breaches\": %" PRIu64 "}", row->breaches);
}

void kvt_report_json(const struct kvt_report *report)
{
	const char *separator = "";
	uint32_t number;
	uint32_t mode;

	printf("{\"event_loop\": \"%s\", \"modes\": {", report->event_loop);
	for (mode = 0; mode < kvt_mode_count; mode++) {
		if (!report->chosen[mode])
			continue;
		printf("%s", separator);
		json_mode(report, mode);
		separator = ", ";
	}
	printf("}");
	for (number = 0; number < KVT_FRIENDS; number++) {
		printf(", \"%s\": {", friend_keys[number]);
		json_latency("alone", &report->board->latency[number][KVT_PHASE_ALONE], ", ");
		json_latency("hungry", &report->board->latency[number][KVT_PHASE_HUNGRY], ", ");
		json_latency("hostile", &report->hostile[number], ", ");
		printf("\"ratio\": %.3f}", kvt_report_ratio(report, number));
	}
	printf(", \"fds\": [%d, %d], \"rss_kib\": [%ld, %ld], \"longest_turn_us\": %" PRIu64 "}\n",
	       report->before.fds, report->after.fds, report->before.rss_kib, report->after.rss_kib,
	       report->longest_turn_us);
}
