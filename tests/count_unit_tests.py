"""Prints "PASSED FAILED SKIPPED" of a `bazel test`, from its build events: gtest's cases where a target wrote them down, else
one per target. A target that could not be built is one failure; it is named on stderr, as every failed case is."""

import json
import sys
import urllib.parse
import xml.etree.ElementTree


def cases_of(xml_path):
    """(passed, failed, skipped, names of the failed) in a test.xml."""
    passed = skipped = 0
    failed = []
    for case in xml.etree.ElementTree.parse(xml_path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname', '')}.{case.get('name')}")
        elif case.find("skipped") is not None or case.get("result") == "skipped" or case.get("status") == "notrun":
            skipped += 1
        else:
            passed += 1
    return passed, len(failed), skipped, failed


def xml_of(result):
    for output in result.get("testActionOutput", []):
        if output.get("name") == "test.xml":
            return urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
    return None


def main(events_path):
    totals = [0, 0, 0]
    with open(events_path) as events:
        for line in events:
            event = json.loads(line)
            if "testResult" in event["id"]:
                label = event["id"]["testResult"]["label"]
                result = event.get("testResult", {})
                counts = (0, 0, 0, [])
                path = xml_of(result)
                if path:
                    counts = cases_of(path)
                good = result.get("status") == "PASSED"
                if good and sum(counts[:3]) == 0:
                    counts = (1, 0, 0, [])
                if not good and counts[1] == 0:
                    # Crashed or ran out of time: what it did before is not a result.
                    counts = (0, 1, 0, [result.get("status", "no result")])
                for name in counts[3]:
                    print(f"FAILED {label} {name}", file=sys.stderr)
                totals = [total + count for total, count in zip(totals, counts)]
            elif "targetCompleted" in event["id"] and not event.get("completed", {}).get("success"):
                label = event["id"]["targetCompleted"]["label"]
                print(f"FAILED {label} was not built", file=sys.stderr)
                totals[1] += 1
    print(*totals)


main(sys.argv[1])
