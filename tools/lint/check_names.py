#!/usr/bin/env python3
"""Names, by clang-tidy (see .clang-tidy): each source file of the project that the compilation database knows."""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys

from sources import ROOT, Findings, code_files, main

FINDING = re.compile(r"^(/[^:]+):(\d+):\d+: (?:error|warning): (.*?)(?: \[.*)?$")


def tidy(database, path):
    done = subprocess.run(["clang-tidy-19", "--quiet", "-p", str(database), str(path)],
                          capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def check():
    database = ROOT / (sys.argv[1] if len(sys.argv) > 1 else "build/release")
    known = {pathlib.Path(entry["directory"], entry["file"]).resolve()
             for entry in json.loads((database / "compile_commands.json").read_text())}
    # Tests are left to the other checks: GoogleTest's macros make names of their own, and they are half of the time.
    sources = [path for path in code_files((".cpp",)) if path in known and not path.stem.endswith("_test")]
    findings = Findings("names")
    seen = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, (code, output) in zip(sources, pool.map(lambda source: tidy(database, source), sources)):
            matches = [match for match in map(FINDING.match, output.splitlines()) if match]
            for match in matches:
                where = (match.group(1), match.group(2), match.group(3))
                if where not in seen and pathlib.Path(where[0]).is_relative_to(ROOT):
                    seen.add(where)
                    findings.add(pathlib.Path(where[0]), where[1], where[2])
            if code != 0 and not matches:
                findings.add(path, 1, "clang-tidy failed: " + output.strip()[:300])
    return findings.finish(len(sources))


if __name__ == "__main__":
    main(check)
