/* SPDX-License-Identifier: Apache-2.0 */
/* Programs under test. */
#include "program.h"

#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support.h"

#define MAX_WORDS 40

static char *slurp(FILE *file)
{
	long length;
	char *text;

	fseek(file, 0, SEEK_END);
	length = ftell(file);
	rewind(file);
	text = calloc(1, (size_t)length + 1);
	assert_non_null(text);
	assert_int_equal(fread(text, 1, (size_t)length, file), length);
	fclose(file);
	return text;
}

/* A group of its own, as a shell gives it: a test can signal all its processes. */
static void exec_with(char *const *argv, int out, int err)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	setpgid(0, 0);
	dup2(out, STDOUT_FILENO);
	dup2(err, STDERR_FILENO);
	execv(argv[0], argv);
	_exit(127);
}

static int wait_code(pid_t pid)
{
	int status = 0;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 256 + WTERMSIG(status);
}

struct kvt_running kvt_start_until(char *const *argv, const char *word)
{
	struct kvt_running running = {.out = tmpfile()};
	char line[1024];
	int fds[2];

	assert_non_null(running.out);
	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	running.pid = fork();
	assert_true(running.pid >= 0);
	if (running.pid == 0)
		exec_with(argv, fileno(running.out), fds[1]);
	close(fds[1]);
	running.err = fdopen(fds[0], "re");
	assert_non_null(running.err);
	while (fgets(line, sizeof(line), running.err) && !strstr(line, word))
		;
	return running;
}

/* A pipe has no size to ask for. */
static char *drain(FILE *file)
{
	size_t capacity = 65536;
	char *text = calloc(1, capacity);
	size_t length;

	assert_non_null(text);
	length = fread(text, 1, capacity - 1, file);
	assert_true(length < capacity - 1);
	fclose(file);
	return text;
}

struct kvt_output kvt_finish(struct kvt_running *running)
{
	struct kvt_output output = {.err = drain(running->err)};

	output.code = wait_code(running->pid);
	output.out = slurp(running->out);
	return output;
}

struct kvt_output kvt_run(char *const *argv)
{
	struct kvt_output output;
	FILE *out = tmpfile();
	FILE *err = tmpfile();
	pid_t pid;

	assert_non_null(out);
	assert_non_null(err);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		exec_with(argv, fileno(out), fileno(err));
	output.code = wait_code(pid);
	output.out = slurp(out);
	output.err = slurp(err);
	return output;
}

struct kvt_output kvt_run_words(const char *program, ...)
{
	char *words[MAX_WORDS + 1] = {NULL};
	struct kvt_output output;
	const char *word = program;
	va_list list;
	int count = 0;

	va_start(list, program);
	for (; word && count < MAX_WORDS; word = va_arg(list, const char *))
		words[count++] = strdup(word);
	va_end(list);
	output = kvt_run(words);
	while (count)
		free(words[--count]);
	return output;
}

void kvt_output_free(struct kvt_output *output)
{
	free(output->out);
	free(output->err);
	memset(output, 0, sizeof(*output));
}

json_t *kvt_output_json(const struct kvt_output *output)
{
	json_error_t error;
	json_t *root = json_loads(output->out, JSON_REJECT_DUPLICATES, &error);

	if (!root)
		fail_msg("no JSON (%s):\n%s\n%s", error.text, output->out, output->err);
	return root;
}

double kvt_json_number(const json_t *object, const char *key)
{
	const json_t *value = json_object_get(object, key);

	if (!json_is_number(value))
		fail_msg("'%s' is no number", key);
	return json_number_value(value);
}

static void exec_daemon(const char *program, const char *folder, const char *const *sets, int ready_fd)
{
	char words[MAX_WORDS][200];
	char *argv[MAX_WORDS + 1] = {NULL};
	int count = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	snprintf(words[count++], 200, "%s", program);
	snprintf(words[count++], 200, "--config=/dev/null");
	snprintf(words[count++], 200, "--socket=%s/socket", folder);
	snprintf(words[count++], 200, "--ready-fd=%d", ready_fd);
	for (; *sets && count < MAX_WORDS; sets++)
		snprintf(words[count++], 200, "--set=%s", *sets);
	for (int i = 0; i < count; i++)
		argv[i] = words[i];
	fcntl(ready_fd, F_SETFD, 0);
	execv(program, argv);
	_exit(127);
}

pid_t kvt_start_daemon(const char *program, const char *folder, const char *const *sets)
{
	char byte;
	int fds[2];
	pid_t pid;

	assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
	pid = fork();
	assert_true(pid >= 0);
	if (pid == 0)
		exec_daemon(program, folder, sets, fds[1]);
	close(fds[1]);
	assert_int_equal(read(fds[0], &byte, 1), 1);
	close(fds[0]);
	return pid;
}

int kvt_stop_daemon(pid_t pid)
{
	kill(pid, SIGTERM);
	return wait_code(pid);
}
