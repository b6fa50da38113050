"""Wherever the version of a release stands, it is the daemon's (daemon/config/version.h): `tests/dev version` writes it there."""

import re
import sys
import unittest

from harness import ROOT

sys.path.insert(0, str(ROOT / "tests"))

import version_places  # noqa: E402


class VersionTest(unittest.TestCase):
    def test_it_is_the_same_in_all_places(self):
        version = version_places.version()
        for places, pattern in (version_places.CHANGELOG, *version_places.COPIES):
            paths = list(ROOT.glob(places))
            self.assertTrue(paths, places)
            for path in paths:
                with self.subTest(path=path.relative_to(ROOT), pattern=pattern):
                    self.assertEqual({version}, set(re.findall(pattern, path.read_text(), re.MULTILINE)))

    def test_a_new_one_is_written_into_each(self):
        for places, pattern in version_places.COPIES:
            for path in ROOT.glob(places):
                with self.subTest(path=path.relative_to(ROOT), pattern=pattern):
                    stamped = version_places.stamp(path.read_text(), pattern, "98.7.6")
                    self.assertEqual({"98.7.6"}, set(re.findall(pattern, stamped, re.MULTILINE)))
                    self.assertNotEqual(stamped, path.read_text())


if __name__ == "__main__":
    unittest.main()
