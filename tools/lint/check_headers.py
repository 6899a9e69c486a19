#!/usr/bin/env python3
"""Headers: each begins with a few lines that say what it is, has #pragma once, and compiles alone."""

import concurrent.futures
import os
import shutil
import subprocess

from sources import ROOT, Findings, code_files, main

HEAD_LINES = range(1, 7)
INCLUDE_PATHS = ("src", "include", "apps/theseus")


def head_comment(lines):
    count = 0
    while count < len(lines) and lines[count].startswith("//"):
        count += 1
    return count


def compile_alone(path):
    compiler = os.environ.get("CXX") or shutil.which("g++") or "c++"
    command = [compiler, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-x", "c++", "-"]
    command += [f"-I{ROOT / folder}" for folder in INCLUDE_PATHS] + ["-DTHESEUS_SOURCE_DIR=\".\""]
    # Twice: the guard must work.
    unit = f'#include "{path}"\n#include "{path}"\n'
    done = subprocess.run(command, input=unit, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[0]


def check():
    findings = Findings("headers")
    headers = code_files((".h",))
    for path in headers:
        lines = path.read_text().splitlines()
        if head_comment(lines) not in HEAD_LINES:
            findings.add(path, 1, f"begins with {head_comment(lines)} lines of comment; 1 to 6 say what it is, who owns it, which threads")
        if "#pragma once" not in lines:
            findings.add(path, 1, "no #pragma once")
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, error in zip(headers, pool.map(compile_alone, headers)):
            if error:
                findings.add(path, 1, f"does not compile alone: {error}")
    return findings.finish(len(headers))


if __name__ == "__main__":
    main(check)
