/* SPDX-License-Identifier: Apache-2.0 */
/* --check of memory: what pools and their books take, of which pages, against the machine, the cgroup and the limits. */
#include "preflight_internal.h"

#include "ipc/shm.h"

#include <stdio.h>

/* What the pools take when they are made in their order. */
struct demand {
	uint64_t bytes;      /* of other pages than huge ones of hugetlb, and records */
	uint64_t huge_must;  /* pages = hugetlb */
	uint64_t huge_may;   /* pages = auto, granted while they last */
	uint64_t huge_short; /* pages = auto that fall back */
	uint64_t thp_must;   /* bytes of pages = thp */
	uint64_t fallback;   /* bytes of pages = auto that fall back */
	uint64_t largest;
	uint64_t tables; /* of every engine at its limit */
};

static void add_auto(struct demand *demand, const struct kvd_facts *facts, uint64_t bytes, uint64_t pages)
{
	if (demand->huge_must + demand->huge_may + pages <= facts->huge.unpromised) {
		demand->huge_may += pages;
		return;
	}
	demand->huge_short += pages;
	demand->fallback += bytes;
	demand->bytes += bytes;
}

static void add_pool(struct demand *demand, const struct kvd_facts *facts, const struct kvd_pool_config *pool)
{
	uint64_t bytes = pool->geometry.bytes;
	uint64_t pages = bytes / KVD_HUGE_BYTES + (bytes % KVD_HUGE_BYTES != 0);

	demand->bytes += (uint64_t)pool->geometry.blocks * sizeof(struct kvw_block_record);
	if (pool->tables_limit_bytes > demand->tables)
		demand->tables = pool->tables_limit_bytes;
	if (kvd_pool_config_is_cuda(pool))
		return;
	if (bytes > demand->largest)
		demand->largest = bytes;
	if (pool->pages == KVD_PAGES_HUGETLB)
		demand->huge_must += pages;
	else if (pool->pages == KVD_PAGES_AUTO)
		add_auto(demand, facts, bytes, pages);
	else
		demand->bytes += bytes;
	if (pool->pages == KVD_PAGES_THP)
		demand->thp_must += bytes;
}

static void judge_room(struct kvd_report *report, const char *subject, const char *what, const char *change,
		       uint64_t need, uint64_t room)
{
	char need_text[32];
	char room_text[32];

	kvd_format_bytes(need, need_text, sizeof(need_text));
	if (room == UINT64_MAX) {
		kvd_report_line(report, KVD_VERDICT_OK, subject, NULL, "%s sets no limit", what);
		return;
	}
	kvd_format_bytes(room, room_text, sizeof(room_text));
	kvd_report_line(report, need <= room ? KVD_VERDICT_OK : KVD_VERDICT_FAIL, subject,
			need <= room ? NULL : change, "pools and their records take %s, %s leaves %s",
			need_text, what, room_text);
}

static void judge_machine(struct kvd_report *report, const struct demand *demand)
{
	const struct kvd_machine_memory *memory = &report->facts->memory;
	char what[300];

	judge_room(report, "memory", "the machine", "lower 'blocks', or free memory", demand->bytes,
		   memory->available);
	if (memory->cgroup == UINT64_MAX) {
		kvd_report_line(report, KVD_VERDICT_OK, "cgroup", NULL, "no memory.max above this process");
	} else {
		snprintf(what, sizeof(what), "memory.max of cgroup %s", memory->cgroup_path);
		judge_room(report, "cgroup", what,
			   "MemoryMax= of the unit (or the container's memory limit), or lower 'blocks'",
			   demand->bytes, memory->cgroup);
	}
}

/* Made as engines attach, so only their limit can be judged here. */
static void judge_tables(struct kvd_report *report, const struct demand *demand)
{
	const struct kvd_machine_memory *memory = &report->facts->memory;
	uint64_t room = memory->cgroup < memory->available ? memory->cgroup : memory->available;
	uint64_t left = demand->bytes < room ? room - demand->bytes : 0;
	bool fits = demand->tables <= left;
	char text[32];
	char left_text[32];

	kvd_format_bytes(demand->tables, text, sizeof(text));
	kvd_format_bytes(left, left_text, sizeof(left_text));
	if (room == UINT64_MAX)
		snprintf(left_text, sizeof(left_text), "an unknown rest");
	kvd_report_line(report, fits ? KVD_VERDICT_OK : KVD_VERDICT_NOTE, "tables",
			fits ? NULL : "lower tables_limit or 'blocks'",
			"one engine may take up to %s, the pools leave %s", text, left_text);
}

static void judge_huge(struct kvd_report *report, const struct demand *demand)
{
	const struct kvd_machine_huge *huge = &report->facts->huge;
	uint64_t wanted = demand->huge_must + demand->huge_may + demand->huge_short;
	uint64_t missing = wanted > huge->unpromised ? wanted - huge->unpromised : 0;
	enum kvd_verdict verdict = KVD_VERDICT_OK;
	char change[80];

	if (!wanted)
		return;
	if (demand->huge_must > huge->unpromised)
		verdict = KVD_VERDICT_FAIL;
	else if (missing)
		verdict = KVD_VERDICT_NOTE;
	snprintf(change, sizeof(change), "sysctl vm.nr_hugepages=%llu",
		 (unsigned long long)(huge->total + missing));
	kvd_report_line(report, verdict, "huge pages", missing ? change : NULL,
			"pools want %llu of 2 MiB, %llu of %llu are free", (unsigned long long)wanted,
			(unsigned long long)huge->unpromised, (unsigned long long)huge->total);
}

static void judge_thp(struct kvd_report *report, const struct demand *demand)
{
	const char *word = report->facts->shmem_thp;
	bool granted = kvd_machine_thp_granted(word);

	if (!demand->thp_must && !demand->fallback)
		return;
	if (granted)
		kvd_report_line(report, KVD_VERDICT_OK, "transparent huge pages", NULL,
				"shmem_enabled is '%s'", word);
	else
		kvd_report_line(report, demand->thp_must ? KVD_VERDICT_FAIL : KVD_VERDICT_NOTE,
				"transparent huge pages",
				"echo advise > /sys/kernel/mm/transparent_hugepage/shmem_enabled",
				"shmem_enabled is '%s': %s", word[0] ? word : "absent",
				demand->thp_must ? "pages = thp can't be had"
						 : "pools get pages of 4 KiB, slow to fill and to map");
}

static void judge_file_bytes(struct kvd_report *report, const struct demand *demand)
{
	uint64_t limit = report->facts->file_bytes.rlim_cur;
	char largest[32];
	char text[32];

	if (limit == RLIM_INFINITY || limit >= demand->largest)
		return;
	kvd_format_bytes(demand->largest, largest, sizeof(largest));
	kvd_format_bytes(limit, text, sizeof(text));
	kvd_report_line(report, KVD_VERDICT_FAIL, "file size", "LimitFSIZE=infinity (or ulimit -f unlimited)",
			"the largest pool takes %s, above the limit of %s on a file", largest, text);
}

void kvd_judge_memory(struct kvd_report *report)
{
	struct demand demand = {0};

	for (uint32_t i = 0; i < report->config->pool_count; i++)
		add_pool(&demand, report->facts, &report->config->pools[i]);
	/* Huge pages that are not there yet have to come from the rest. */
	if (demand.huge_must > report->facts->huge.unpromised)
		demand.bytes += (demand.huge_must - report->facts->huge.unpromised) * KVD_HUGE_BYTES;
	judge_machine(report, &demand);
	judge_tables(report, &demand);
	judge_huge(report, &demand);
	judge_thp(report, &demand);
	judge_file_bytes(report, &demand);
}
