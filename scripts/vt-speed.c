/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Init of the guest that scripts/vt-speed.py boots. The kernel's command line selects its
 * work: speed=none, speed=compute (a fixed number of instructions on each vCPU)
 * or speed=spin (a ticket lock that all vCPUs take, for a fixed time). Then it powers off.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <time.h>
#include <unistd.h>

#define ROUNDS 500000000ULL
#define SPIN_S 3

static _Atomic uint32_t ticket, served;
static int spins;

static uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ULL + t.tv_nsec;
}

static void *work(void *arg)
{
	uint64_t end = now_ns() + SPIN_S * 1000000000ULL, i;
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET((long)arg, &set);
	sched_setaffinity(0, sizeof(set), &set);
	if (!spins) {
		/* Two instructions a round. */
		for (i = ROUNDS; i; i--)
			__asm__ volatile("");
		return NULL;
	}
	while (now_ns() < end) {
		uint32_t mine = atomic_fetch_add(&ticket, 1);

		while (atomic_load(&served) != mine)
			__builtin_ia32_pause();
		atomic_fetch_add(&served, 1);
	}
	return NULL;
}

int main(void)
{
	long n = sysconf(_SC_NPROCESSORS_ONLN), i;
	pthread_t threads[64];
	char line[4096] = "";
	FILE *file;

	mount("proc", "/proc", "proc", 0, NULL);
	file = fopen("/proc/cmdline", "r");
	if (file && fgets(line, sizeof(line), file) && !strstr(line, "speed=none")) {
		spins = !!strstr(line, "speed=spin");
		for (i = 0; i < n && i < 64; i++)
			pthread_create(&threads[i], NULL, work, (void *)i);
		for (i = 0; i < n && i < 64; i++)
			pthread_join(threads[i], NULL);
	}
	reboot(RB_POWER_OFF);
	return 0;
}
