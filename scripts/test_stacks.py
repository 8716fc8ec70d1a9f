"""Tests how scripts/stacks.py parses an L1's output. Run by `python3 -m unittest discover -s scripts`."""

import unittest

import stacks
from checks import Failed


def printed(stack: str, without: str = "", status: int = 0, pairs: int = 2) -> str:
    """Returns an L1's output for one guest. Its serial port ends lines with CR LF."""
    lines = [f"stack {stack}", "guest: 7.3.4+deb13-cloud-amd64, clock kvm-clock"]
    names = [name for name in stacks.MEASURES if name != without]
    lines += [f"figure {name} {at}.5" for at, name in enumerate(names, 1)]
    lines += ["pairs eth0 1", f"pairs eth1 {pairs}", f"status {status}"]
    return "\r\n".join(lines) + "\r\n"


class Stacks(unittest.TestCase):
    def test_figures_are_read_by_stack(self) -> None:
        found = stacks.figures("\r\nhost: 6.12.1\r\n" + printed("vmm") + printed("qemu"))
        self.assertEqual(list(found), ["vmm", "qemu"])
        self.assertEqual(found["qemu"], {name: at + 0.5 for at, name in enumerate(stacks.MEASURES, 1)})

    def test_a_guest_that_lacks_something_fails(self) -> None:
        guests = [
            printed("vmm", without="randread"),
            printed("vmm", status=4),
            printed("vmm", pairs=1),
            printed("vmm").replace("send-1 4.5", "send-1 0"),
        ]
        for guest in guests:
            with self.assertRaises(Failed):
                stacks.figures(printed("qemu") + guest)

    def test_only_stacks_that_ran_are_compared(self) -> None:
        each = {
            "qemu": {name: [2.0, 4.0] for name in stacks.MEASURES},
            "vmm": {name: [3.0, 6.0] for name in stacks.MEASURES},
        }
        each["vmm"]["send-2"] = [6.0, 12.0]
        ratios = {row["name"]: row["ratio"] for row in stacks.comparisons(each)}
        self.assertEqual(len(ratios), len(stacks.MEASURES) + 4)
        self.assertAlmostEqual(ratios["vmm.randread"], 1.5)
        self.assertAlmostEqual(ratios["pairs.vmm.send"], 2)
        self.assertAlmostEqual(ratios["pairs.qemu.send"], 1)

    def test_claims_of_emulated_guests_say_so(self) -> None:
        each = {stack: {name: [2.0] for name in stacks.MEASURES} for stack in stacks.STACKS}
        rows = stacks.comparisons(each)
        result = {"time": "virtual", "host_kernel": "6.12.1", "rounds": 1, "rows": rows}
        result |= {"xen": "4.17.5", "dom0_kernel": "6.1.0"}
        plain, es, xen = stacks.claims(result)
        self.assertEqual(plain.found[0]["id"], "cvm.seed003.control")
        self.assertEqual(xen.found[0]["id"], "cvm.seed003.xen.control")
        label = "xen 4.17.5 nested in virtual time, prices free, dom0 kernel 6.1.0"
        self.assertEqual(xen.found[0]["label"], label)
        parts = (".es.", ".xen.")
        for made, stack, count in ((plain, [], 12), (es, [".es."], 9), (xen, [".xen."], 10)):
            self.assertEqual(len(made.found), count)
            for claim in made.found:
                self.assertEqual([part for part in parts if part in claim["id"]], stack)
                self.assertEqual("emulated SEV-ES" in claim["label"], stack == [".es."])
                self.assertEqual("kvm" in claim["label"], stack != [".xen."])

    def test_without_xen_its_baseline_alone_is_claimed(self) -> None:
        each = {stack: {name: [2.0] for name in stacks.MEASURES} for stack in ("qemu", "vmm")}
        rows = stacks.comparisons(each)
        result = {"time": "real", "host_kernel": "6.12.1", "rounds": 1, "rows": rows}
        plain, es = stacks.claims(result)
        self.assertEqual((len(plain.found), es.found), (12, []))

    def test_each_l1_prints_its_versions(self) -> None:
        log = "\r\nhost: 6.1.0-57-amd64\r\nhypervisor: Xen 4.17.5\r\n" + printed("xen")
        self.assertEqual(stacks.version(log, "host"), "6.1.0-57-amd64")
        self.assertEqual(stacks.version(log, "hypervisor"), "4.17.5")
        self.assertEqual(stacks.version(log, "guest"), "7.3.4+deb13-cloud-amd64")
        with self.assertRaises(Failed):
            stacks.version(printed("vmm"), "hypervisor")

    def test_the_control_is_a_distance_from_1(self) -> None:
        cases = [
            ((0.98, 0.95, 1.01), (2, 0, 5)),
            ((1.04, 1.03, 1.05), (4, 3, 5)),
            ((0.96, 0.95, 0.98), (4, 2, 5)),
        ]
        for (middle, low, high), wanted in cases:
            row = {"ratio": middle, "low": low, "high": high}
            for found, value in zip(stacks.distance(row), wanted, strict=True):
                self.assertAlmostEqual(found, value)


if __name__ == "__main__":
    unittest.main()
