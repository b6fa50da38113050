"""What `go tool pprof` reads in a file, which shares nothing with what writes it."""

import collections
import dataclasses
import os
import re
import subprocess

import go_programs


def available():
    go = go_programs.go_command()
    return go is not None and subprocess.run([go, "tool", "pprof", "-h"], capture_output=True, check=False).returncode in (0, 2)


def ask(*arguments):
    """Its answer to a report such as "-top"; it names nothing by itself."""
    command = [go_programs.go_command(), "tool", "pprof", "-symbolize=none", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120,
                          env={**os.environ, "GOFLAGS": "", "GOTOOLCHAIN": "local"})
    if done.returncode != 0:
        raise AssertionError(f"{command} ended with {done.returncode}: {done.stderr}")
    return done.stdout


@dataclasses.dataclass(frozen=True)
class Line:
    function: str
    file: str
    line: int


@dataclasses.dataclass
class Sample:
    value: int
    lines: list  # innermost first
    labels: dict


@dataclasses.dataclass
class Location:
    address: int
    mapping: int  # 0: none
    lines: list


@dataclasses.dataclass
class Mapping:
    start: int
    path: str
    build_id: str


class Raw:
    """A file by `pprof -raw`."""

    LINE = re.compile(r"(.*) (\S*):(\d+):\d+ s=\d+.*")

    def __init__(self, file):
        self.comments, self.samples, self.locations, self.mappings = [], [], {}, {}
        self._ids = []
        section = None
        for text in ask("-raw", file).splitlines():
            if text in ("Samples:", "Locations", "Mappings"):
                section = {"Samples:": self._sample, "Locations": self._location, "Mappings": self._mapping}[text]
            elif section:
                section(text)
            elif text.startswith("Comment: "):
                self.comments.append(text.removeprefix("Comment: "))
        for sample, ids in zip(self.samples, self._ids):
            sample.lines = [line for number in ids for line in self.locations[number].lines]

    def _sample(self, text):
        begin = re.fullmatch(r" *(\d+): ((?:\d+ )*)", text)
        if begin:
            self.samples.append(Sample(int(begin[1]), [], {}))
            self._ids.append([int(number) for number in begin[2].split()])
        elif text.startswith("      "):
            # One line for the labels that are texts and one for those that are numbers: "state:[running] thread:[io]".
            self.samples[-1].labels |= dict(re.findall(r"(\w+):\[(.*?)\](?= \w+:\[|\s*$)", text))
        else:
            self.type = text.strip()

    def _location(self, text):
        begin = re.match(r" *(\d+): 0x([0-9a-f]+) (?:M=(\d+) )?", text)
        if begin:
            self._last = self.locations[int(begin[1])] = Location(int(begin[2], 16), int(begin[3] or 0), [])
            text = text[begin.end():]
        found = self.LINE.fullmatch(text.strip())
        if found:
            self._last.lines.append(Line(found[1], found[2], int(found[3])))

    def _mapping(self, text):
        number, start, path, build_id = re.match(r"(\d+): 0x([0-9a-f]+)/\S+ (\S*) ?([0-9a-f]*)", text).groups()
        self.mappings[int(number)] = Mapping(int(start, 16), path, build_id)

    def threads(self):
        """{tid: sample}"""
        return {int(sample.labels["tid"]): sample for sample in self.samples if "task" not in sample.labels}

    def tasks(self):
        return [sample for sample in self.samples if "task" in sample.labels]


def total(report):
    """How many threads and tasks the nodes of a report are: "accounting for 21, 91.30% of 23 total"."""
    return int(re.search(r"Showing nodes accounting for (\d+), ", report)[1])


def top(file, *filters):
    """({function: threads that are in it}, {function: threads in it or in what it calls})"""
    flat, cumulative = collections.Counter(), collections.Counter()
    report = ask("-top", "-nodecount=100000", "-nodefraction=0", "-edgefraction=0", *filters, file)
    for row in re.finditer(r"^ +(\d+) +\S+ +\S+ +(\d+) +\S+  (.*?)(?: \(inline\)| \(partial-inline\))?$", report, re.MULTILINE):
        flat[row[3]] += int(row[1])
        cumulative[row[3]] += int(row[2])
    if total(report) != sum(flat.values()):
        raise AssertionError(f"the rows do not add up: {report}")
    return +flat, cumulative
