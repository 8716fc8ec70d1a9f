// SPDX-License-Identifier: GPL-2.0-only
/*
 * Runs a VMM, and after each of its KVM_RUNs searches what the hypervisor's user space has for a
 * canary: the vCPU's shared pages (struct kvm_run), and the GHCB in the guest's memory. It also asks
 * KVM for the vCPU's registers in the VMM's name, each time. scripts/es-emu.py builds and runs it.
 *
 * Usage: look CANARY SHOWN GHCB MEMORY PROGRAM [ARGUMENT...], or look CANARY SHOWN NAME FILE...
 * CANARY and SHOWN are values, GHCB is the page's address, and MEMORY is the guest's memory in
 * bytes. SHOWN is a value that the guest shows, so it must be found. The other form searches files,
 * such as the raw buffers of the kernel's trace, and calls them NAME.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/kvm.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#define OPTIONS (PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_EXITKILL)
#define PLACES 8
#define ROOM 16384
#define TASKS 65536

static uint64_t canary, shown, ghcb, memory;
/* Pages of the VMM: those of a vCPU, and the GHCB's page in each of the guest's memories. */
static struct place {
	const char *name;
	uint64_t at, bytes, canaries, shown;
} places[PLACES];
static int places_found;
static uint64_t runs, reasons[64], in_answers;
/* The vCPU's descriptor while a task is in KVM_RUN, plus 1. */
static int in_run[TASKS];

static const struct {
	const char *name;
	unsigned long number;
} questions[] = {
	{ "KVM_GET_REGS", KVM_GET_REGS },
	{ "KVM_GET_SREGS", KVM_GET_SREGS },
	{ "KVM_GET_FPU", KVM_GET_FPU },
	{ "KVM_GET_XSAVE", KVM_GET_XSAVE },
	{ "KVM_GET_DEBUGREGS", KVM_GET_DEBUGREGS },
};
#define QUESTIONS (sizeof(questions) / sizeof(questions[0]))
static uint64_t answered[QUESTIONS];

static void fail(const char *what)
{
	perror(what);
	exit(99);
}

static int file_of(pid_t pid, const char *name, int flags)
{
	char path[64];
	int file;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	file = open(path, flags);
	if (file < 0)
		fail(path);
	return file;
}

static void add(const char *name, uint64_t at, uint64_t bytes)
{
	if (places_found < PLACES)
		places[places_found++] = (struct place) { .name = name, .at = at, .bytes = bytes };
}

static void find_places(pid_t pid)
{
	FILE *maps = fdopen(file_of(pid, "maps", O_RDONLY), "r");
	unsigned long from, to;
	char line[512], rights[8];

	while (fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %7s", &from, &to, rights) != 3)
			continue;
		if (strstr(line, "kvm-vcpu"))
			add("kvm_run", from, to - from);
		/* The guest's memories may be neighbours in one mapping. */
		else if (!strncmp(rights, "rw-p", 4) && (to - from) % memory == 0)
			for (; from < to; from += memory)
				add("ghcb", from + ghcb, 4096);
	}
	fclose(maps);
}

static uint64_t count(const uint8_t *data, size_t bytes, uint64_t value)
{
	uint64_t found = 0;

	for (const uint8_t *end = data + bytes, *at = data;
	     (at = memmem(at, end - at, &value, sizeof(value))); at++)
		found++;
	return found;
}

/* Executes a system call in the name of a task that has just left one. */
static long in_the_name(pid_t task, int descriptor, unsigned long request, uint64_t buffer)
{
	struct user_regs_struct saved, regs;
	int status;

	ptrace(PTRACE_GETREGS, task, 0, &saved);
	regs = saved;
	/* SYSCALL has two bytes. */
	regs.rip -= 2;
	regs.rax = SYS_ioctl;
	regs.rdi = descriptor;
	regs.rsi = request;
	regs.rdx = buffer;
	ptrace(PTRACE_SETREGS, task, 0, &regs);
	for (int stop = 0; stop < 2; stop++) {
		ptrace(PTRACE_SYSCALL, task, 0, 0);
		if (waitpid(task, &status, __WALL) != task || !WIFSTOPPED(status) ||
		    WSTOPSIG(status) != (SIGTRAP | 0x80))
			fail("a system call in the VMM's name");
	}
	ptrace(PTRACE_GETREGS, task, 0, &regs);
	ptrace(PTRACE_SETREGS, task, 0, &saved);
	return regs.rax;
}

static void ask(pid_t task, int memory_file, int descriptor)
{
	static uint8_t data[8192];
	struct user_regs_struct regs;
	uint64_t buffer;

	ptrace(PTRACE_GETREGS, task, 0, &regs);
	buffer = (regs.rsp - 2 * sizeof(data)) & ~63ul;
	for (size_t i = 0; i < QUESTIONS; i++) {
		if (in_the_name(task, descriptor, questions[i].number, buffer))
			continue;
		answered[i]++;
		if (pread(memory_file, data, sizeof(data), buffer) == sizeof(data))
			in_answers += count(data, sizeof(data), canary);
	}
}

static void look(pid_t task, pid_t vmm, int descriptor)
{
	static uint8_t data[ROOM];
	static int file;

	if (!places_found) {
		find_places(vmm);
		file = file_of(vmm, "mem", O_RDONLY);
	}
	runs++;
	for (int i = 0; i < places_found; i++) {
		struct place *place = &places[i];
		size_t bytes = place->bytes < ROOM ? place->bytes : ROOM;

		if (pread(file, data, bytes, place->at) != (ssize_t)bytes)
			fail(place->name);
		place->canaries += count(data, bytes, canary);
		place->shown += count(data, bytes, shown);
		if (!strcmp(place->name, "kvm_run"))
			reasons[((struct kvm_run *)data)->exit_reason % 64]++;
	}
	ask(task, file, descriptor);
}

static void report(void)
{
	printf("looked after %lu runs:", runs);
	for (int i = 0; i < 64; i++)
		if (reasons[i])
			printf(" %d=%lu", i, reasons[i]);
	printf("\n");
	for (int i = 0; i < places_found; i++)
		printf("looked at %s shown %lu canary %lu\n", places[i].name, places[i].shown,
		       places[i].canaries);
	for (size_t i = 0; i < QUESTIONS; i++)
		printf("asked %s answered %lu\n", questions[i].name, answered[i]);
	printf("looked at answers canary %lu\n", in_answers);
}

static void at_system_call(pid_t task, pid_t vmm)
{
	struct __ptrace_syscall_info info;

	if (ptrace(PTRACE_GET_SYSCALL_INFO, task, sizeof(info), &info) <= 0)
		return;
	if (info.op == PTRACE_SYSCALL_INFO_ENTRY)
		in_run[task % TASKS] = info.entry.nr == SYS_ioctl && info.entry.args[1] == KVM_RUN ?
				       info.entry.args[0] + 1 : 0;
	else if (info.op == PTRACE_SYSCALL_INFO_EXIT && in_run[task % TASKS])
		look(task, vmm, in_run[task % TASKS] - 1);
}

/* Searches files that may have no end, such as trace_pipe_raw. */
static int search(const char *name, char **files)
{
	static uint8_t data[(1 << 20) + sizeof(canary)];
	struct place place = { .name = name };

	for (; *files; files++) {
		int file = open(*files, O_RDONLY | O_NONBLOCK);
		/* The last bytes of one read may be the beginning of a value. */
		size_t kept = 0;
		ssize_t got;

		if (file < 0)
			fail(*files);
		while ((got = read(file, data + kept, 1 << 20)) > 0) {
			size_t bytes = kept + got;

			place.bytes += got;
			place.canaries += count(data, bytes, canary);
			place.shown += count(data, bytes, shown);
			kept = bytes < sizeof(canary) - 1 ? bytes : sizeof(canary) - 1;
			memmove(data, data + bytes - kept, kept);
		}
		close(file);
	}
	printf("searched %lu bytes\n", place.bytes);
	printf("looked at %s shown %lu canary %lu\n", name, place.shown, place.canaries);
	return 0;
}

int main(int words_given, char **words)
{
	int status, signal;
	pid_t vmm, task;

	if (words_given < 5)
		return 2;
	canary = strtoul(words[1], NULL, 0);
	shown = strtoul(words[2], NULL, 0);
	if (words[3][0] != '0')
		return search(words[3], words + 4);
	ghcb = strtoul(words[3], NULL, 0);
	memory = strtoul(words[4], NULL, 0);
	vmm = fork();
	if (!vmm) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		raise(SIGSTOP);
		execvp(words[5], words + 5);
		fail(words[5]);
	}
	waitpid(vmm, &status, 0);
	ptrace(PTRACE_SETOPTIONS, vmm, 0, OPTIONS);
	ptrace(PTRACE_SYSCALL, vmm, 0, 0);
	while ((task = waitpid(-1, &status, __WALL)) > 0) {
		if (WIFEXITED(status) || WIFSIGNALED(status)) {
			if (task == vmm)
				break;
			continue;
		}
		signal = WSTOPSIG(status);
		if (signal == (SIGTRAP | 0x80))
			at_system_call(task, vmm);
		/* A thread begins with SIGSTOP. Stops by ptrace itself are no signals. */
		if (signal == (SIGTRAP | 0x80) || signal == SIGTRAP || signal == SIGSTOP)
			signal = 0;
		ptrace(PTRACE_SYSCALL, task, 0, signal);
	}
	report();
	return WIFEXITED(status) ? WEXITSTATUS(status) : 98;
}
