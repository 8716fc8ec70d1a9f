/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Compares the clocks of all vCPUs: a thread pinned to each vCPU reads its time stamp counter and
 * CLOCK_MONOTONIC concurrently with the other threads. Prints how often time went back on a vCPU,
 * and the largest lag of a vCPU's reading behind an earlier reading of another vCPU, in ns.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <x86intrin.h>

#define VCPUS_MAX 64
/* Number of handovers to reach, and the time limit. */
#define HANDOVERS 20000
#define LONGEST_NS 5000000000ULL

/* The latest readings of all vCPUs. A thread publishes its reading after it has read the clock. */
static _Atomic uint64_t latest_tsc, latest_ns;
static _Atomic uint64_t back, behind_tsc, behind_ns;
/* Number of readings that follow a reading of another vCPU. */
static _Atomic uint64_t handovers, last_reader;
static pthread_barrier_t start;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void raise(_Atomic uint64_t *most, uint64_t value)
{
	uint64_t seen = atomic_load(most);

	while (seen < value && !atomic_compare_exchange_weak(most, &seen, value))
		;
}

/* Publishes a reading, and records its lag if it is behind the readings published before. */
static uint64_t read_after(_Atomic uint64_t *latest, _Atomic uint64_t *behind, uint64_t now,
			   uint64_t published)
{
	if (now < published)
		raise(behind, published - now);
	raise(latest, now);
	return now;
}

static void *reader(void *vcpu)
{
	uint64_t tsc = 0, ns = 0, published, until_ns;
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET((uintptr_t)vcpu, &one);
	if (sched_setaffinity(0, sizeof(one), &one))
		exit(2);
	pthread_barrier_wait(&start);
	until_ns = now_ns() + LONGEST_NS;
	for (int i = 0; handovers < HANDOVERS && ns < until_ns; i++) {
		uint64_t before_tsc = tsc, before_ns = ns;

		if (atomic_exchange(&last_reader, (uintptr_t)vcpu) != (uintptr_t)vcpu)
			atomic_fetch_add(&handovers, 1);

		published = atomic_load(&latest_tsc);
		tsc = read_after(&latest_tsc, &behind_tsc, __rdtsc(), published);
		published = atomic_load(&latest_ns);
		ns = read_after(&latest_ns, &behind_ns, now_ns(), published);
		if (tsc < before_tsc || ns < before_ns)
			atomic_fetch_add(&back, 1);
		if (i % 1000 == 0)
			sched_yield();
	}
	return NULL;
}

int main(void)
{
	uint64_t began_tsc = __rdtsc(), began_ns = now_ns();
	long vcpus = 0;
	pthread_t threads[VCPUS_MAX];
	cpu_set_t all;
	double per_ns;

	sched_getaffinity(0, sizeof(all), &all);
	pthread_barrier_init(&start, NULL, CPU_COUNT(&all));
	for (uintptr_t vcpu = 0; vcpu < VCPUS_MAX; vcpu++)
		if (CPU_ISSET(vcpu, &all) &&
		    pthread_create(&threads[vcpus++], NULL, reader, (void *)vcpu))
			return 2;
	for (long i = 0; i < vcpus; i++)
		pthread_join(threads[i], NULL);
	per_ns = (double)(__rdtsc() - began_tsc) / (double)(now_ns() - began_ns);
	printf("handovers %llu\n", (unsigned long long)handovers);
	printf("vcpus %ld back %llu tsc_ns %.0f clock_ns %llu\n", vcpus, (unsigned long long)back,
	       (double)behind_tsc / per_ns, (unsigned long long)behind_ns);
	printf("result %ld\n", vcpus);
	return 0;
}
