"""Tests of scripts/vmsa.py."""

import unittest

import vmsa
from checks import Failed

REGISTERS = "RAX=0 RBX=0 RCX=0 RDX=0\nRSI=0 RDI=0 RBP=0 RSP=0\nR8 =0 R9 =7 R10=0 R11=0\nR12=0 R13=0 R14=0 R15=0\n"
REGISTERS += "RIP=0 RFL=00000002 [-------]\nCR0=0 CR2=0 CR3=0 CR4=0\nEFER=0000000000000500\n"


def page(name: str, value: int) -> bytes:
    """Returns a VMSA with RFLAGS, EFER, R9 and another register."""
    data = bytearray(4096)
    for register, number in (("RFL", 2), ("EFER", 0x1500), ("R9", 7), (name, value)):
        data[vmsa.OFFSETS[register] : vmsa.OFFSETS[register] + 8] = number.to_bytes(8, "little")
    return bytes(data)


class Compared(unittest.TestCase):
    def test_a_vcpu_has_the_registers_of_its_vmsa(self) -> None:
        self.assertEqual(vmsa.compared(REGISTERS, page("RAX", 0)), f"{len(vmsa.OFFSETS)} registers")

    def test_each_other_register_is_noticed(self) -> None:
        for name in vmsa.OFFSETS:
            with self.subTest(name), self.assertRaises(Failed):
                vmsa.compared(REGISTERS, page(name, 0x600))


if __name__ == "__main__":
    unittest.main()
