"""Prints "PASSED FAILED SKIPPED" of a `bazel test`, from its build events: gtest's cases where a target wrote them down, else
one per target. A target that could not be built is one failure; it is named on stderr, as every failed case is. Writes
"TARGET: REASON" for each that was skipped into a second file."""

import json
import sys
import urllib.parse
import xml.etree.ElementTree


def cases_of(xml_path):
    """(passed, names of the failed, why each other was skipped) in a test.xml."""
    passed = 0
    failed, skipped = [], []
    for case in xml.etree.ElementTree.parse(xml_path).iter("testcase"):
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(f"{case.get('classname', '')}.{case.get('name')}")
        elif case.find("skipped") is not None or case.get("result") == "skipped" or case.get("status") == "notrun":
            said = case.find("skipped")
            skipped.append(said.get("message", "") if said is not None else "")
        else:
            passed += 1
    return passed, failed, skipped


def xml_of(result):
    for output in result.get("testActionOutput", []):
        if output.get("name") == "test.xml":
            return urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
    return None


def main(events_path, skipped_path):
    totals = [0, 0, 0]
    with open(events_path) as events, open(skipped_path, "w") as skipped_file:
        for line in events:
            event = json.loads(line)
            if "testResult" in event["id"]:
                label = event["id"]["testResult"]["label"]
                result = event.get("testResult", {})
                path = xml_of(result)
                passed, failed, skipped = cases_of(path) if path else (0, [], [])
                good = result.get("status") == "PASSED"
                if good and not (passed or failed or skipped):
                    passed = 1
                if not good and not failed:
                    # Crashed or ran out of time: what it did before is not a result.
                    passed, failed, skipped = 0, [result.get("status", "no result")], []
                for name in failed:
                    print(f"FAILED {label} {name}", file=sys.stderr)
                for reason in skipped:
                    # gtest puts file and line before it.
                    print(f"{label}: {(reason.splitlines() or [''])[-1]}", file=skipped_file)
                totals = [total + count for total, count in zip(totals, (passed, len(failed), len(skipped)))]
            elif "targetCompleted" in event["id"] and not event.get("completed", {}).get("success"):
                label = event["id"]["targetCompleted"]["label"]
                print(f"FAILED {label} was not built", file=sys.stderr)
                totals[1] += 1
    print(*totals)


main(*sys.argv[1:])
