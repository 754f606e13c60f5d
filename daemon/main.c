/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvpoold: reads its configuration, serves until TERM, INT or HUP, and ends in order.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "config.h"
#include "log.h"
#include "log_writer.h"
#include "notify.h"
#include "preflight.h"
#include "server.h"

/* What on_signal() needs. */
struct ending {
	struct kvd_server *server;
	int signal_fd;
};

static void on_signal(void *arg)
{
	struct ending *ending = arg;
	struct signalfd_siginfo info;

	kvd_turn_part(&ending->server->clock, "a signal");
	while (read(ending->signal_fd, &info, sizeof(info)) == sizeof(info)) {
		kvd_log_info("signal %s: ending", strsignal((int)info.ssi_signo));
		ending->server->end = true;
	}
}

/* Before any thread starts, so that all of them leave these to the loop. */
static int open_signals(void)
{
	sigset_t set;
	int fd;

	signal(SIGPIPE, SIG_IGN);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGHUP);
	if (sigprocmask(SIG_BLOCK, &set, NULL))
		return -errno;
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	return fd < 0 ? -errno : fd;
}

static void tell_manager(const char *state)
{
	int ret = kvd_notify(state);

	if (ret)
		kvd_log_warning("the service manager at $NOTIFY_SOCKET can't be told %s: %s", state,
				strerror(-ret));
}

/* Tells who started us that every pool can be attached to. */
static void tell_ready(const struct kvd_config *config)
{
	static const char text[] = "ready\n";

	kvd_log_info("ready");
	tell_manager("READY=1");
	if (config->ready_fd < 0)
		return;
	if (write(config->ready_fd, text, sizeof(text) - 1) < 0)
		kvd_log_warning("descriptor %d of '--ready-fd': %s", config->ready_fd, strerror(errno));
	close(config->ready_fd);
}

static int run(struct kvd_server *server)
{
	bool told = false;
	int ret = 0;

	while (!server->end && !ret) {
		if (!told && kvd_server_ready(server)) {
			tell_ready(server->config);
			told = true;
		}
		ret = kvd_server_turn(server);
	}
	return ret;
}

static int serve_signalled(const struct kvd_config *config, int signal_fd)
{
	struct ending ending = {.signal_fd = signal_fd};
	struct kvd_watch *watch;
	int ret = kvd_server_open(config, &ending.server);

	if (ret)
		return ret;
	ret = kvd_loop_watch(ending.server->loop, ending.signal_fd, on_signal, &ending, &watch);
	if (!ret)
		ret = run(ending.server);
	tell_manager("STOPPING=1");
	kvd_server_close(ending.server);
	kvd_log_info(ret ? "ended after a failure" : "ended");
	return ret;
}

/* From here on nothing waits for standard error, but for a bounded time at the end. */
static int serve(const struct kvd_config *config)
{
	int signal_fd = open_signals();
	int ret;

	if (signal_fd < 0) {
		kvd_log_error("signals can't be taken: %s", strerror(-signal_fd));
		return signal_fd;
	}
	ret = kvd_log_writer_start();
	if (ret)
		kvd_log_error("the thread that writes the log can't be started: %s", strerror(-ret));
	else
		ret = serve_signalled(config, signal_fd);
	kvd_log_writer_stop();
	close(signal_fd);
	return ret;
}

int main(int argc, char **argv)
{
	struct kvd_config config;
	char error[512];
	int ret;

	ret = kvd_config_load(argc, argv, &config, error, sizeof(error));
	if (ret) {
		fprintf(stderr, "kvpoold: %s\n", error);
		return 1;
	}
	kvd_log_set_level(config.log_level);
	if (config.check_only)
		ret = kvd_preflight(&config, stdout);
	else if (!config.help && !config.version)
		ret = serve(&config);
	kvd_config_free(&config);
	return ret ? 1 : 0;
}
