/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: getopt_long, whose table is made from the key table, so that every key of [daemon] is an option (with _ or with -).
 * It is walked twice: for --config and what ends at once, then, with the file read, for the keys.
 */
#include "config_internal.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include <kvpool/version.h>

enum option_code {
	OPTION_CONFIG = 'c',
	OPTION_CHECK = 256,
	OPTION_HELP,
	OPTION_VERSION,
	OPTION_SET,
	OPTION_READY_FD,
	OPTION_KEY
};

#define FIXED_OPTIONS 6
/* Each key twice, and the end. */
#define MAX_OPTIONS (FIXED_OPTIONS + 2 * KVD_DAEMON_KEYS + 1)

static const struct option fixed_options[FIXED_OPTIONS] = {
	{"config", required_argument, NULL, OPTION_CONFIG},
	{"check", no_argument, NULL, OPTION_CHECK},
	{"help", no_argument, NULL, OPTION_HELP},
	{"version", no_argument, NULL, OPTION_VERSION},
	{"set", required_argument, NULL, OPTION_SET},
	{"ready-fd", required_argument, NULL, OPTION_READY_FD},
};

struct options {
	struct option table[MAX_OPTIONS];
	char dashed[KVD_DAEMON_KEYS][32];
};

static void dash(const char *name, char *out, size_t capacity)
{
	snprintf(out, capacity, "%s", name);
	for (; *out; out++)
		if (*out == '_')
			*out = '-';
}

static void make_options(struct options *options)
{
	int n = FIXED_OPTIONS;

	memset(options, 0, sizeof(*options));
	memcpy(options->table, fixed_options, sizeof(fixed_options));
	for (int i = 0; i < KVD_DAEMON_KEYS; i++) {
		const char *name = kvd_daemon_keys[i].name;

		dash(name, options->dashed[i], sizeof(options->dashed[i]));
		options->table[n++] =
			(struct option){options->dashed[i], required_argument, NULL, OPTION_KEY + i};
		if (strcmp(name, options->dashed[i]) != 0)
			options->table[n++] = (struct option){name, required_argument, NULL, OPTION_KEY + i};
	}
}

/* "pool.NAME.KEY=VALUE" */
static int apply_set(struct kvd_load *load, const char *argument)
{
	char *copy = strdup(argument);
	char *rest = copy;
	char *pool;
	char *key;
	int ret;

	if (!copy)
		return -ENOMEM;
	if (!strncmp(copy, "pool.", 5)) {
		rest += 5;
		pool = strsep(&rest, ".");
		key = strsep(&rest, "=");
		if (key && rest) {
			ret = kvd_load_set(load, "command line, --set", true, pool, key, rest);
			goto out_free;
		}
	}
	ret = kvd_load_fail(load, "command line",
			    "--set '%.80s' is not pool.NAME.KEY=VALUE; options of [daemon] are set "
			    "by --KEY=VALUE",
			    argument);
out_free:
	free(copy);
	return ret;
}

static int read_ready_fd(struct kvd_load *load, const char *argument)
{
	uint64_t fd;

	if (!kvd_parse_number(argument, &fd) || fd > INT_MAX)
		return kvd_load_fail(load, "command line",
				     "--ready-fd '%.80s' is no descriptor; give the number of an open one",
				     argument);
	load->config.ready_fd = (int)fd;
	return 0;
}

static int take_config(struct kvd_load *load, const char *argument)
{
	if (load->path_given)
		return kvd_load_fail(load, "command line", "--config is given twice; remove one of the two");
	load->path = argument;
	load->path_given = true;
	return 0;
}

static int take_first(struct kvd_load *load, int code, const char *argument)
{
	switch (code) {
	case OPTION_CONFIG:
		return take_config(load, argument);
	case OPTION_CHECK:
		load->config.check_only = true;
		return 0;
	case OPTION_HELP:
		load->config.help = true;
		return 0;
	case OPTION_VERSION:
		load->config.version = true;
		return 0;
	case OPTION_READY_FD:
		return read_ready_fd(load, argument);
	default:
		return 0;
	}
}

static int take_key(struct kvd_load *load, int code, const char *argument)
{
	char dashed[32];
	char at[KVD_WHERE_BYTES];

	if (code == OPTION_SET)
		return apply_set(load, argument);
	if (code < OPTION_KEY)
		return 0;
	dash(kvd_daemon_keys[code - OPTION_KEY].name, dashed, sizeof(dashed));
	snprintf(at, sizeof(at), "command line, --%s", dashed);
	return kvd_load_set(load, at, true, NULL, kvd_daemon_keys[code - OPTION_KEY].name, argument);
}

static int fail_option(struct kvd_load *load, int code, const char *argument)
{
	if (code == ':')
		return kvd_load_fail(load, "command line", "'%.80s' needs a value; see --help", argument);
	return kvd_load_fail(load, "command line", "'%.80s' is no option, or takes no value; see --help",
			     argument);
}

int kvd_load_args(struct kvd_load *load, int argc, char **argv, bool apply)
{
	struct options options;
	int code;
	int ret = 0;

	make_options(&options);
	optind = 0; /* glibc: begin anew */
	opterr = 0;
	while (!ret && (code = getopt_long(argc, argv, "+:c:h", options.table, NULL)) != -1) {
		if (code == '?' || code == ':')
			return fail_option(load, code, argv[optind - 1]);
		if (code == 'h')
			code = OPTION_HELP;
		ret = apply ? take_key(load, code, optarg) : take_first(load, code, optarg);
	}
	if (!ret && optind < argc)
		return kvd_load_fail(load, "command line", "'%.80s' is not an option; see --help",
				     argv[optind]);
	return ret;
}

static void print_keys(FILE *out, const struct kvd_key *keys, int count, bool options)
{
	char dashed[32];

	for (int i = 0; i < count; i++) {
		dash(keys[i].name, dashed, sizeof(dashed));
		fprintf(out, "  %s%-16s %s\n", options ? "--" : "", options ? dashed : keys[i].name,
			keys[i].help);
		fprintf(out, "  %s%-16s %s", options ? "  " : "", "", keys[i].range);
		if (!keys[i].fallback)
			fprintf(out, " (must be given)\n");
		else if (keys[i].fallback[0])
			fprintf(out, " (default %s)\n", keys[i].fallback);
		else
			fprintf(out, " (default: empty)\n");
	}
}

void kvd_config_usage(FILE *out)
{
	fprintf(out, "usage: kvpoold [option]...\n"
		     "\n"
		     "Owns paged KV caches that several inference engines of this machine share.\n"
		     "\n"
		     "  -c, --config FILE  configuration (default " KVD_DEFAULT_CONFIG ")\n"
		     "  --set pool.NAME.KEY=VALUE\n"
		     "                     a key of a pool, over the file; makes the pool when the file has "
		     "none of that name\n"
		     "  --check            say what this machine has for the configuration and what to "
		     "change, then end\n"
		     "  --ready-fd N       write \"ready\" and a newline to descriptor N when clients can "
		     "connect\n"
		     "  --version          print the version and end\n"
		     "  -h, --help         print this and end\n"
		     "\n"
		     "Keys of [daemon], in the file or, over it, as --key VALUE:\n");
	print_keys(out, kvd_daemon_keys, KVD_DAEMON_KEYS, true);
	fprintf(out, "\nKeys of [pool NAME]:\n");
	print_keys(out, kvd_pool_keys, KVD_POOL_KEYS, false);
	fprintf(out, "\nkvpoold(8) and kvpoold.conf(5) say more.\n");
}

static void print_rows(FILE *out, const char *section, const struct kvd_key *keys, int count)
{
	for (int i = 0; i < count; i++)
		fprintf(out, "%s\t%s\t%s\t%s\t%s\n", section, keys[i].name,
			keys[i].fallback ? keys[i].fallback : "-", keys[i].range, keys[i].help);
}

void kvd_config_print_keys(FILE *out)
{
	print_rows(out, "daemon", kvd_daemon_keys, KVD_DAEMON_KEYS);
	print_rows(out, "pool", kvd_pool_keys, KVD_POOL_KEYS);
}
