/* SPDX-License-Identifier: Apache-2.0 */
/* --check: the configuration, the socket and the descriptors; memory and kernel have files of their own. */
#include "preflight_internal.h"

#include "log.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

void kvd_report_line(struct kvd_report *report, enum kvd_verdict verdict, const char *subject,
		     const char *change, const char *format, ...)
{
	static const char *const words[] = {"ok  ", "note", "FAIL"};
	char text[1024];
	char plain[1024];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	kvd_log_escape(text, plain, sizeof(plain));
	fprintf(report->out, "%s  %s: %s", words[verdict], subject, plain);
	if (change)
		fprintf(report->out, "; to change: %s", change);
	fputc('\n', report->out);
	report->failures += verdict == KVD_VERDICT_FAIL;
}

static void judge_pool(struct kvd_report *report, const struct kvd_pool_config *pool)
{
	char subject[KVW_MAX_NAME_BYTES + 8];
	char bytes[32];
	char tables[32];

	snprintf(subject, sizeof(subject), "pool %s", pool->name);
	kvd_format_bytes(pool->geometry.bytes, bytes, sizeof(bytes));
	kvd_format_bytes(pool->tables_limit_bytes, tables, sizeof(tables));
	kvd_report_line(report, KVD_VERDICT_OK, subject, NULL,
			"%u blocks of %u tokens, %u planes, %llu bytes a block, %s in all with null and %u "
			"sink blocks; "
			"tables of up to %s an engine",
			pool->data_blocks, pool->geometry.block_tokens, pool->geometry.plane_count,
			(unsigned long long)pool->geometry.record_bytes, bytes, pool->max_engines, tables);
}

static void judge_config(struct kvd_report *report)
{
	const struct kvd_config *config = report->config;

	kvd_report_line(report, KVD_VERDICT_OK, "configuration", NULL, "%s, %u pool%s",
			config->file ? config->file : "command line only", config->pool_count,
			config->pool_count == 1 ? "" : "s");
	for (uint32_t i = 0; i < config->pool_count; i++)
		judge_pool(report, &config->pools[i]);
}

static bool has_pieces(const struct kvd_pool_config *pool)
{
	return kvd_pool_config_is_cuda(pool) && pool->share != KVD_SHARE_IPC;
}

static uint64_t descriptors_open(const struct kvd_config *config)
{
	uint64_t count = (uint64_t)config->max_sessions * KVD_SESSION_DESCRIPTORS + KVD_OWN_DESCRIPTORS;

	for (uint32_t i = 0; i < config->pool_count; i++) {
		count += (uint64_t)config->pools[i].max_engines * KVD_ENGINE_DESCRIPTORS;
		count += has_pieces(&config->pools[i]) ? KVW_MAX_CHUNKS : 0;
	}
	return count;
}

/*
 * Sent and not read yet, of every session one message: the kernel holds their number against the same limit, apart from the open ones, and then
 * refuses to send to anybody. Without pieces of device memory a session's are fewer than those it has open.
 */
static uint64_t descriptors_unread(const struct kvd_config *config)
{
	for (uint32_t i = 0; i < config->pool_count; i++) {
		if (has_pieces(&config->pools[i]))
			return (uint64_t)config->max_sessions * KVW_MAX_FDS_PER_MESSAGE;
	}
	return 0;
}

/* The limit must be at least that: for which of the two, *out_what says. */
static uint64_t descriptors_needed(const struct kvd_config *config, const char **out_what)
{
	uint64_t open = descriptors_open(config);
	uint64_t unread = descriptors_unread(config);

	*out_what = unread > open ? " sent and not read yet" : "";
	return unread > open ? unread : open;
}

static void judge_descriptors(struct kvd_report *report)
{
	const struct rlimit *limit = &report->facts->descriptors;
	const char *what;
	uint64_t need = descriptors_needed(report->config, &what);
	char change[160];

	if (limit->rlim_max >= need) {
		kvd_report_line(report, KVD_VERDICT_OK, "descriptors", NULL,
				"max_sessions = %u and max_engines take up to %llu%s, the hard limit is %llu",
				report->config->max_sessions, (unsigned long long)need, what,
				(unsigned long long)limit->rlim_max);
		return;
	}
	snprintf(change, sizeof(change),
		 "LimitNOFILE=%llu in kvpoold.service (or ulimit -Hn), or lower max_sessions or max_engines",
		 (unsigned long long)need);
	kvd_report_line(report, KVD_VERDICT_FAIL, "descriptors", change,
			"max_sessions = %u and max_engines take up to %llu%s, above the hard limit of %llu",
			report->config->max_sessions, (unsigned long long)need, what,
			(unsigned long long)limit->rlim_max);
}

static void judge_socket_dir(struct kvd_report *report)
{
	const struct kvd_facts *facts = report->facts;
	const char *dir = facts->socket_dir;
	char change[256];

	switch (facts->socket_dir_access) {
	case 0:
		kvd_report_line(report, KVD_VERDICT_OK, "socket", NULL, "%s can be made",
				report->config->socket);
		return;
	case -ENOENT:
		snprintf(change, sizeof(change),
			 "mkdir -p '%s' (RuntimeDirectory= in kvpoold.service), or another socket", dir);
		break;
	default:
		snprintf(change, sizeof(change), "chown it to the daemon's user, or another socket");
		break;
	}
	kvd_report_line(report, KVD_VERDICT_FAIL, "socket", change, "directory '%s' can't be used: %s", dir,
			strerror(-facts->socket_dir_access));
}

/* The text of the socket's group; empty when it may not connect. */
static void name_group(const struct kvd_config *config, char *out, size_t capacity)
{
	const struct group *group;

	out[0] = '\0';
	if (!(config->socket_mode & 0020))
		return;
	if (config->socket_group == (gid_t)-1) {
		snprintf(out, capacity, " and the daemon's group");
		return;
	}
	group = getgrgid(config->socket_group);
	if (group)
		snprintf(out, capacity, " and group %s", group->gr_name);
	else
		snprintf(out, capacity, " and group %u", config->socket_group);
}

/* Connecting needs write permission on the socket. */
static void judge_access(struct kvd_report *report)
{
	const struct kvd_config *config = report->config;
	char group[128];

	name_group(config, group, sizeof(group));
	if (config->socket_mode & 0002)
		kvd_report_line(report, KVD_VERDICT_NOTE, "access", "socket_mode = 0660 and a socket_group",
				"every user of this machine may connect (socket_mode = %04o)",
				config->socket_mode);
	else
		kvd_report_line(report, KVD_VERDICT_OK, "access", NULL,
				"root, the daemon's user%s may connect (socket_mode = %04o)", group,
				config->socket_mode);
	if (report->facts->socket_taken)
		kvd_report_line(report, KVD_VERDICT_NOTE, "socket",
				"stop that daemon first, or another socket", "a daemon listens at %s already",
				config->socket);
}

int kvd_preflight_judge(const struct kvd_config *config, const struct kvd_facts *facts, FILE *out)
{
	struct kvd_report report = {.config = config, .facts = facts, .out = out};

	judge_config(&report);
	kvd_judge_memory(&report);
	kvd_judge_cuda(&report);
	judge_descriptors(&report);
	kvd_judge_kernel(&report);
	judge_socket_dir(&report);
	judge_access(&report);
	return report.failures;
}

int kvd_preflight(const struct kvd_config *config, FILE *out)
{
	struct kvd_facts facts;
	int ret;

	kvd_facts_look(config, &facts);
	ret = kvd_preflight_judge(config, &facts, out);
	kvd_facts_drop(&facts);
	return ret;
}

static void raise_limit(const struct kvd_config *config, struct rlimit *limit, uint64_t need,
			const char *what)
{
	if (limit->rlim_max < need)
		kvd_log_warning("max_sessions = %u and max_engines take up to %llu descriptors%s, above the "
				"hard limit of "
				"%llu; lower them or "
				"raise LimitNOFILE",
				config->max_sessions, (unsigned long long)need, what,
				(unsigned long long)limit->rlim_max);
	limit->rlim_cur = limit->rlim_max < need ? limit->rlim_max : need;
	if (setrlimit(RLIMIT_NOFILE, limit) < 0)
		kvd_log_warning("the limit of descriptors can't be raised: %s", strerror(errno));
}

/*
 * The kernel's table of descriptors grows by doubling, and while more than one thread uses it each growth waits for an RCU grace
 * period: 12 ms of a turn in a storm of connections. It never shrinks, so one high number, for a moment, makes it large enough.
 */
static void make_table(uint64_t count)
{
	int fd = eventfd(0, EFD_CLOEXEC);
	int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, (int)count - 1);

	if (high >= 0)
		close(high);
	if (fd >= 0)
		close(fd);
}

void kvd_preflight_raise_descriptors(const struct kvd_config *config)
{
	const char *what;
	uint64_t need = descriptors_needed(config, &what);
	uint64_t open = descriptors_open(config);
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
		return;
	if (limit.rlim_cur < need)
		raise_limit(config, &limit, need, what);
	make_table(limit.rlim_cur < open ? limit.rlim_cur : open);
}
