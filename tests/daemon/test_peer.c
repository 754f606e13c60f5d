/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers, over real sockets with real processes. getsockopt() is wrapped, so that kernels without SO_PEERPIDFD and foreign user namespaces
 * can be played.
 */
#include "daemon/peer.h"

#include "support.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

static int peerpidfd_error;          /* what SO_PEERPIDFD answers; 0: the kernel's answer */
static const struct ucred *peercred; /* what SO_PEERCRED answers; NULL: the kernel's answer */

int __real_getsockopt(int fd, int level, int name, void *value, socklen_t *length);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length);
int __wrap_getsockopt(int fd, int level, int name, void *value, socklen_t *length)
{
	if (name == SO_PEERPIDFD && peerpidfd_error) {
		errno = peerpidfd_error;
		return -1;
	}
	if (name == SO_PEERCRED && peercred) {
		memcpy(value, peercred, sizeof(*peercred));
		return 0;
	}
	return __real_getsockopt(fd, level, name, value, length);
}

/* A child that connected to us and then waits for its end. */
struct client {
	pid_t pid;
	int fd; /* our end */
};

static int listen_in(const char *dir, struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	address->sun_family = AF_UNIX;
	snprintf(address->sun_path, sizeof(address->sun_path), "%s/s", dir);
	assert_int_equal(bind(fd, (const struct sockaddr *)address, sizeof(*address)), 0);
	assert_int_equal(listen(fd, 4), 0);
	return fd;
}

static struct client start_client(void)
{
	struct sockaddr_un address;
	struct client client;
	char *dir = kvt_mkdtemp();
	int listener = listen_in(dir, &address);

	client.pid = fork();
	if (!client.pid) {
		int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);

		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	client.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	assert_true(client.fd >= 0);
	close(listener);
	kvt_rmdir(dir);
	return client;
}

static void reap(const struct client *client)
{
	kill(client->pid, SIGKILL);
	assert_int_equal(waitpid(client->pid, NULL, 0), client->pid);
}

static int reset(void **state)
{
	(void)state;
	peerpidfd_error = 0;
	peercred = NULL;
	return 0;
}

static void identifies_and_sees_the_end(void)
{
	struct client client = start_client();
	struct kvd_peer peer;

	assert_int_equal(kvd_peer_identify(client.fd, &peer), 0);
	assert_int_equal(peer.pid, client.pid);
	assert_int_equal(peer.uid, getuid());
	assert_int_equal(peer.gid, getgid());
	assert_true(peer.pidfd >= 0);
	assert_int_equal(kvd_peer_ended(&peer), 0);
	kill(client.pid, SIGKILL);
	kvt_wait_readable(peer.pidfd, 10000);
	assert_int_equal(kvd_peer_ended(&peer), 1);
	reap(&client);
	assert_int_equal(kvd_peer_ended(&peer), 1);
	kvd_peer_close(&peer);
	assert_int_equal(peer.pidfd, -1);
	close(client.fd);
}

static void a_peer_is_identified_and_its_end_seen(void **state)
{
	int before = kvt_count_fds();

	(void)state;
	identifies_and_sees_the_end();
	assert_int_equal(kvt_count_fds(), before);
}

static void old_kernels_use_pidfd_open(void **state)
{
	static const int errors[] = {ENOPROTOOPT, ENODATA};
	int before = kvt_count_fds();

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		peerpidfd_error = errors[i];
		identifies_and_sees_the_end();
	}
	assert_int_equal(kvt_count_fds(), before);
}

static void refuse_the_dead(int how)
{
	struct client client = start_client();
	struct kvd_peer peer = {.pid = -7};
	int before = kvt_count_fds();

	peerpidfd_error = how;
	reap(&client);
	assert_int_equal(kvd_peer_identify(client.fd, &peer), -ESRCH);
	assert_int_equal(peer.pid, -7);
	assert_int_equal(kvt_count_fds(), before);
	close(client.fd);
}

static void a_peer_that_is_gone_already_is_refused(void **state)
{
	(void)state;
	refuse_the_dead(0);
	refuse_the_dead(ENOPROTOOPT);
	refuse_the_dead(EINVAL);
	refuse_the_dead(ESRCH);
}

/* Its pid may be another process by now: here it is ours, which lives. */
static void a_recycled_pid_is_not_taken_for_the_peer(void **state)
{
	struct client client = start_client();
	struct ucred ours = {getpid(), getuid(), getgid()};
	struct kvd_peer peer;
	int before = kvt_count_fds();

	(void)state;
	reap(&client);
	peerpidfd_error = ENOPROTOOPT;
	peercred = &ours;
	assert_int_equal(kvd_peer_identify(client.fd, &peer), -ESRCH);
	assert_int_equal(kvt_count_fds(), before);
	close(client.fd);
}

static void the_overflow_uid_is_refused(void **state)
{
	struct client client = start_client();
	struct ucred nobody = {client.pid, 65534, 65534};
	struct kvd_peer peer;
	int before = kvt_count_fds();

	(void)state;
	peercred = &nobody;
	assert_int_equal(kvd_peer_identify(client.fd, &peer), -EACCES);
	assert_int_equal(kvt_count_fds(), before);
	reap(&client);
	close(client.fd);
}

static void a_peer_whose_pid_is_hidden_has_no_pidfd_and_never_ends(void **state)
{
	struct client client = start_client();
	struct ucred hidden = {0, 1000, 1000};
	struct kvd_peer peer;

	(void)state;
	peercred = &hidden;
	peerpidfd_error = ENOPROTOOPT;
	assert_int_equal(kvd_peer_identify(client.fd, &peer), 0);
	assert_int_equal(peer.pid, 0);
	assert_int_equal(peer.pidfd, -1);
	reap(&client);
	assert_int_equal(kvd_peer_ended(&peer), 0);
	kvd_peer_close(&peer);
	close(client.fd);
}

static void lack_of_descriptors_is_an_error_and_not_a_peer_without_pidfd(void **state)
{
	struct client client = start_client();
	struct kvd_peer peer;

	(void)state;
	peerpidfd_error = EMFILE;
	assert_int_equal(kvd_peer_identify(client.fd, &peer), -EMFILE);
	reap(&client);
	close(client.fd);
}

static void what_is_no_socket_is_refused(void **state)
{
	struct kvd_peer peer;
	int ends[2];

	(void)state;
	assert_int_equal(pipe(ends), 0);
	assert_int_equal(kvd_peer_identify(ends[0], &peer), -ENOTSOCK);
	close(ends[0]);
	close(ends[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(a_peer_is_identified_and_its_end_seen, reset),
		cmocka_unit_test_setup(old_kernels_use_pidfd_open, reset),
		cmocka_unit_test_setup(a_peer_that_is_gone_already_is_refused, reset),
		cmocka_unit_test_setup(a_recycled_pid_is_not_taken_for_the_peer, reset),
		cmocka_unit_test_setup(the_overflow_uid_is_refused, reset),
		cmocka_unit_test_setup(a_peer_whose_pid_is_hidden_has_no_pidfd_and_never_ends, reset),
		cmocka_unit_test_setup(lack_of_descriptors_is_an_error_and_not_a_peer_without_pidfd, reset),
		cmocka_unit_test_setup(what_is_no_socket_is_refused, reset),
	};

	kvt_watchdog(60);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
