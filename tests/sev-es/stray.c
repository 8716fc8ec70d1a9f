/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Runs in a confidential guest, as root. Lets a virtio device go on with the pages of its ring
 * after the kernel has made them private: takes the kernel's driver away, which frees the ring, and
 * then starts the device by the window in its PCI configuration space, with the ring's old
 * addresses.
 *
 * Usage: stray PCI-DEVICE VIRTIO-DEVICE DRIVER, such as stray 0000:00:02.0 virtio1 virtio_blk
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The types of two structures, and of the window (virtio 1.2, 4.1.4). */
enum { COMMON = 1, NOTIFY = 2, WINDOW = 5, TYPES };
/* Offsets in the common structure. */
enum { FEATURE_SELECT = 8, FEATURE = 12, STATUS = 20, SELECT = 22, SIZE = 24, ENABLE = 28,
       DESC = 32, DRIVER = 40, USED = 48 };
/* Statuses: acknowledged, driver, features accepted, driver ready. */
enum { FOUND = 3, ACCEPTED = 11, READY = 15 };

static int config;
static uint32_t at[TYPES], offset[TYPES];

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

static uint32_t get(uint32_t where, int bytes)
{
	uint32_t value = 0;

	if (pread(config, &value, bytes, where) != bytes)
		fail("cannot read configuration space");
	return value;
}

static void put(uint32_t where, uint32_t value, int bytes)
{
	if (pwrite(config, &value, bytes, where) != bytes)
		fail("cannot write configuration space");
}

static void find_structures(void)
{
	for (uint32_t cap = get(0x34, 1); cap; cap = get(cap + 1, 1)) {
		uint32_t type = get(cap + 3, 1);

		if (get(cap, 1) == 9 && type < TYPES) {
			at[type] = cap;
			offset[type] = get(cap + 8, 4);
		}
	}
	if (!at[COMMON] || !at[NOTIFY] || !at[WINDOW]) {
		puts("stray: no virtio device");
		exit(1);
	}
}

static void aim(uint32_t where, int bytes)
{
	put(at[WINDOW] + 8, where, 4);
	put(at[WINDOW] + 12, bytes, 4);
}

static uint32_t load(int field, int bytes)
{
	aim(offset[COMMON] + field, bytes);
	return get(at[WINDOW] + 16, bytes);
}

static void store(int field, uint32_t value, int bytes)
{
	aim(offset[COMMON] + field, bytes);
	put(at[WINDOW] + 16, value, bytes);
}

/* Gives a device to its driver, or takes it away. */
static void bind_or(const char *action, const char *driver, const char *device)
{
	char path[128];
	int fd;

	snprintf(path, sizeof(path), "/sys/bus/virtio/drivers/%s/%s", driver, action);
	fd = open(path, O_WRONLY);
	if (fd < 0 || write(fd, device, strlen(device)) < 0)
		fail(path);
	close(fd);
}

int main(int count, char **words)
{
	uint32_t ring[6];
	char path[128];

	if (count != 4) {
		puts("usage: stray PCI-DEVICE VIRTIO-DEVICE DRIVER");
		return 2;
	}
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/config", words[1]);
	config = open(path, O_RDWR);
	if (config < 0)
		fail(path);
	find_structures();
	store(SELECT, 0, 2);
	for (int i = 0; i < 6; i++)
		ring[i] = load(DESC + 4 * i, 4);
	bind_or("unbind", words[3], words[2]);
	store(STATUS, 0, 1);
	store(STATUS, FOUND, 1);
	/* VIRTIO_F_VERSION_1 and VIRTIO_F_ACCESS_PLATFORM. */
	store(FEATURE_SELECT, 1, 4);
	store(FEATURE, 3, 4);
	store(STATUS, ACCEPTED, 1);
	store(SELECT, 0, 2);
	for (int i = 0; i < 6; i++)
		store(DESC + 4 * i, ring[i], 4);
	store(ENABLE, 1, 2);
	store(STATUS, READY, 1);
	aim(offset[NOTIFY], 2);
	put(at[WINDOW] + 16, 0, 2);
	usleep(200000);
	printf("stray: ring %#x %#x %#x, status %#x\n", ring[0], ring[2], ring[4], load(STATUS, 1));
	store(STATUS, 0, 1);
	bind_or("bind", words[3], words[2]);
	puts("stray: ok");
	return 0;
}
