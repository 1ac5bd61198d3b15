#!/usr/bin/env python3
"""Adds up test results in JUnit's form and prints "N passed, N failed".

Skipped tests and results that are not there count as failed. Exit status 1 if any failed.
"""

import sys
import xml.etree.ElementTree as tree


def main(paths):
    passed = failed = 0
    for path in paths:
        try:
            cases = list(tree.parse(path).iter("testcase"))
        except (OSError, tree.ParseError):
            cases = []
        if not cases:
            print(f"{path}: no test has run")
            failed += 1
        for case in cases:
            bad = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
            if bad:
                print(f"{bad[0]}: {case.get('classname')} {case.get('name')}")
                failed += 1
            else:
                passed += 1
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
