/* SPDX-License-Identifier: GPL-2.0-only */
/* The end of a guest of KVM; part of guest.c. */

/* Waits for a byte from the serial port. Until then, scripts/es-emu.py reads the memory. */
static void power_off(void)
{
	do {
		clear();
		call(0x7b, 0x3fd << 16 | 1 << 4 | 1, 0);
	} while (!(get(RAX) & 1));
	/* The ACPI register that powers off. */
	clear();
	put(RAX, 1 << 13);
	call(0x7b, 0x604 << 16 | 2 << 4, 0);
}
