#!/usr/bin/env python3
"""Words: no abbreviations in names, no unfinished-work marks, no paths of somebody's machine, memory orders are argued."""

import re

from sources import ROOT, Findings, blank_literals, code_files, main, tracked_files

IDENTIFIER = re.compile(r"\b[A-Za-z_][A-Za-z0-9_]*\b")
PART = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
ABBREVIATIONS = {"buf", "cnt", "cfg", "ctx", "idx"}
MARKS = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|TB" + r"D|HA" + r"CK)\b")
PRIVATE_PATHS = re.compile(r"(?<![\w.$}/])/(home|root|work|Users)/\w")
ORDER = re.compile(r"\bmemory_order\w*|\batomic_thread_fence\b")
ARGUMENT_LINES = 4  # a comment this many lines above an atomic still argues for it
# Names that other people's headers chose.
FOREIGN = {"msg_ctx", "setvbuf", "pcap_buf", "streambuf", "stringbuf", "filebuf", "pubsetbuf", "rdbuf", "ucp_context"}


def check_identifiers(path, text, findings):
    for number, line in enumerate(text.splitlines(), 1):
        for match in IDENTIFIER.finditer(line):
            name = match.group(0)
            if name in FOREIGN:
                continue
            bad = ABBREVIATIONS & {part.lower() for part in PART.findall(name)}
            if bad:
                findings.add(path, number, f"name {name}: write out '{sorted(bad)[0]}'")


def check_orders(path, raw, text, findings):
    lines = raw.splitlines()
    for number, line in enumerate(text.splitlines(), 1):
        if ORDER.search(line) and not line.lstrip().startswith("#"):
            if not any("//" in near for near in lines[max(0, number - 1 - ARGUMENT_LINES):number]):
                findings.add(path, number, "a memory order without its argument in a comment above")


def check():
    findings = Findings("words")
    files = tracked_files()
    for path in files:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for pattern, what in ((MARKS, "unfinished work"), (PRIVATE_PATHS, "path of one machine")):
                match = pattern.search(line)
                if match:
                    findings.add(path, number, f"{what}: {match.group(0)}")
    for path in code_files():
        raw = path.read_text()
        text = blank_literals(raw)
        check_identifiers(path, text, findings)
        if not path.stem.endswith("_test"):
            check_orders(path, raw, text, findings)
    return findings.finish(len(files))


if __name__ == "__main__":
    main(check)
