/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Prints the protection keys that each thread of a process may use (pkeys(7)), by ptrace:
 *
 *     isolation PID KEY STEPS
 *
 * Each thread gets a line "thread NAME PKRU". Threads of the kernel, which never run the program's
 * code, get a line "kernel NAME". Then each vCPU's thread executes STEPS instructions one by one.
 * Each time that it enters KVM_RUN, a line "between NAME BEFORE DENIED AFTER MIXED" counts its
 * instructions since the last KVM_RUN: those before it denies itself the key, those without the
 * key, and those after it allows itself the key. MIXED is 1 if it used the key in between, too.
 */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>
#include <sys/user.h>
#include <sys/wait.h>

#define THREADS_MAX 64
/* A flag of a thread that the kernel started in the process (linux/sched.h). */
#define PF_USER_WORKER 0x4000
#define SYS_IOCTL 16
#define KVM_RUN 0xae80
#define SYSCALL_INSTRUCTION 0x050f

static unsigned int place;

static void fail(const char *what)
{
	fprintf(stderr, "isolation: %s: %s\n", what, strerror(errno));
	exit(1);
}

/* Returns the place of PKRU in the state that XSAVE stores. */
static unsigned int find_pkru(void)
{
	unsigned int size = 0, offset = 0, ecx, edx;

	__cpuid_count(0xd, 9, size, offset, ecx, edx);
	if (!size) {
		fprintf(stderr, "isolation: the processor has no protection keys\n");
		exit(77);
	}
	return offset;
}

static uint32_t pkru_of(pid_t thread)
{
	static uint8_t state[16384];
	struct iovec part = { state, sizeof(state) };
	uint32_t rights;

	if (ptrace(PTRACE_GETREGSET, thread, NT_X86_XSTATE, &part))
		fail("read the state");
	if (part.iov_len < place + sizeof(rights)) {
		errno = ENODATA;
		fail("read PKRU");
	}
	memcpy(&rights, state + place, sizeof(rights));
	return rights;
}

static void line_of(pid_t pid, pid_t thread, const char *file, char *line, int size)
{
	char path[64];
	FILE *opened;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/%s", pid, thread, file);
	opened = fopen(path, "r");
	if (!opened || !fgets(line, size, opened))
		fail(path);
	fclose(opened);
	line[strcspn(line, "\n")] = 0;
}

static int is_kernels(pid_t pid, pid_t thread)
{
	char line[1024], *rest;
	unsigned int flags;

	line_of(pid, thread, "stat", line, sizeof(line));
	rest = strrchr(line, ')');
	if (!rest || sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) != 1)
		fail("read a thread's flags");
	return flags & PF_USER_WORKER;
}

static void wait_for(pid_t thread)
{
	int status;

	if (waitpid(thread, &status, __WALL) != thread || !WIFSTOPPED(status))
		fail("wait for a thread");
}

struct stretch {
	unsigned long before, denied, after, mixed;
};

static void count(struct stretch *s, int denied)
{
	if (denied) {
		s->denied++;
		s->mixed |= s->after > 0;
	} else if (s->denied) {
		s->after++;
	} else {
		s->before++;
	}
}

/* Executes instructions of a vCPU's thread one by one. */
static void step(pid_t thread, const char *name, int key, long steps)
{
	struct stretch one = { 0 };
	struct user_regs_struct registers;
	int runs = 0;

	while (steps-- > 0) {
		long code;

		count(&one, pkru_of(thread) >> 2 * key & 1);
		if (ptrace(PTRACE_GETREGS, thread, 0, &registers))
			fail("read the registers");
		code = ptrace(PTRACE_PEEKTEXT, thread, registers.rip, 0);
		if ((code & 0xffff) == SYSCALL_INSTRUCTION && registers.rax == SYS_IOCTL &&
		    (uint32_t)registers.rsi == KVM_RUN) {
			/* The first stretch began somewhere. */
			if (runs++)
				printf("between %s %lu %lu %lu %lu\n", name, one.before, one.denied,
				       one.after, one.mixed);
			memset(&one, 0, sizeof(one));
		}
		if (ptrace(PTRACE_SINGLESTEP, thread, 0, 0))
			fail("execute an instruction");
		wait_for(thread);
	}
}

int main(int argc, char **argv)
{
	pid_t pid, threads[THREADS_MAX];
	char path[64], names[THREADS_MAX][32];
	int total = 0, index;
	struct dirent *entry;
	DIR *folder;

	if (argc != 4)
		return 2;
	place = find_pkru();
	pid = atoi(argv[1]);
	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	folder = opendir(path);
	if (!folder)
		fail(path);
	while ((entry = readdir(folder)) && total < THREADS_MAX) {
		pid_t thread = atoi(entry->d_name);

		if (thread <= 0)
			continue;
		line_of(pid, thread, "comm", names[total], sizeof(names[total]));
		if (is_kernels(pid, thread)) {
			printf("kernel %s\n", names[total]);
			continue;
		}
		if (ptrace(PTRACE_SEIZE, thread, 0, 0) || ptrace(PTRACE_INTERRUPT, thread, 0, 0))
			fail("stop a thread");
		wait_for(thread);
		printf("thread %s %x\n", names[total], pkru_of(thread));
		threads[total++] = thread;
	}
	closedir(folder);
	for (index = 0; index < total; index++) {
		/* A thread that waits may wait for a thread that was stopped. */
		if (strncmp(names[index], "vcpu", 4) && ptrace(PTRACE_CONT, threads[index], 0, 0))
			fail("let a thread go on");
	}
	for (index = 0; index < total; index++) {
		if (strncmp(names[index], "vcpu", 4))
			continue;
		step(threads[index], names[index], atoi(argv[2]), atol(argv[3]));
		if (ptrace(PTRACE_DETACH, threads[index], 0, 0))
			fail("let a thread go");
	}
	printf("isolation: end\n");
	/* The kernel detaches all other threads. */
	return 0;
}
