/* SPDX-License-Identifier: GPL-2.0-only */
/* How a guest of KVM ends; part of guest.c. */

/* Waits for a byte from the serial port: scripts/es-emu.py looks at the memory until then. */
static void power_off(void)
{
	do {
		clear();
		call(0x7b, 0x3fd << 16 | 1 << 4 | 1, 0);
	} while (!(get(RAX) & 1));
	/* ACPI's register. */
	clear();
	put(RAX, 1 << 13);
	call(0x7b, 0x604 << 16 | 2 << 4, 0);
}
