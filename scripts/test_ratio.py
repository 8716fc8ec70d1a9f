"""Tests the intervals of figures. Run by `python3 -m unittest discover -s scripts`."""

import unittest

from claims import spread
from ratio import ratio


class Ratio(unittest.TestCase):
    def test_rounds_that_differ_by_a_factor_have_that_ratio(self) -> None:
        for found in ratio([2.0, 4.0, 8.0], [1.0, 2.0, 4.0]):
            self.assertAlmostEqual(found, 2)

    def test_a_round_without_a_figure_is_an_error(self) -> None:
        cases = [([], []), ([1.0], []), ([1.0, 2.0], [1.0]), ([0.0], [1.0]), ([1.0], [-1.0])]
        for arm, base in [*cases, ([1.0], [float("nan")])]:
            with self.subTest((arm, base)), self.assertRaises(ValueError):
                ratio(arm, base)

    def test_a_few_samples_have_no_interval(self) -> None:
        self.assertEqual(spread([3.0, 1.0, 2.0, 5.0, 4.0]), (None, None))
        self.assertEqual(spread([3.0, 1.0, 2.0, 5.0, 4.0, 6.0]), (1.0, 6.0))


if __name__ == "__main__":
    unittest.main()
