#!/usr/bin/env python3
"""Include direction: cmake/modules.cmake is the table of who may include whom; heavy headers stay in few source files."""

import collections
import re

from sources import ROOT, Findings, code_files, main

MODULE = re.compile(r"^theseus_module\((\w+)\s+LEVEL (\d+) DEPS([^)]*)\)", re.M)
INCLUDE = re.compile(r'^\s*#\s*include\s+([<"])([^>"]+)[>"]')

# Slow to compile: never in a header, and in at most two source files of a module.
HEAVY = ("nlohmann/", "CLI/", "pugixml.hpp", "httplib.h", "spdlog/", "toml++/")
HEAVY_FILES_A_MODULE = 2
# Not for headers, without a limit in source files.
SOURCE_ONLY = ("fmt/",)
# The verbs of the command line each name their options.
HEAVY_AT_HOME = {"CLI/": ("apps", "bench")}
PUBLIC_ALLOWED = re.compile(r"^(tl/expected\.hpp|[a-z_]+)$")


def read_table(findings):
    path = ROOT / "cmake" / "modules.cmake"
    table = {}
    for match in MODULE.finditer(path.read_text()):
        table[match.group(1)] = (int(match.group(2)), match.group(3).split())
    for name, (level, needs) in table.items():
        for need in needs:
            if need not in table:
                findings.add(path, 1, f"module {name} needs {need}, which is not in the table")
            elif table[need][0] >= level:
                findings.add(path, 1, f"module {name} (level {level}) needs {need} (level {table[need][0]}): only lower levels")
    return table


def check_quoted(target, parts, table):
    """Why a file may not include "target"; None when it may."""
    first = target.split("/")[0]
    if first == "theseus":
        return None if (ROOT / "include" / target).is_file() else f'no public header "{target}"'
    if parts[0] == "include":
        return f'a public header includes "{target}": std, tl/expected.hpp and theseus/ only'
    if parts[0] != "src":
        return None
    module = parts[1]
    if not (ROOT / "src" / target).is_file():
        return f'"{target}" is not below src/: write the path from there'
    if first == module or first in table[module][1]:
        return None
    return f'module {module} may not include "{target}": {first} is not among its DEPS in cmake/modules.cmake'


def check_angled(target, path, parts):
    if parts[0] == "include" and not PUBLIC_ALLOWED.match(target):
        return f"a public header includes <{target}>: std, tl/expected.hpp and theseus/ only"
    if path.suffix == ".h" and any(target.startswith(heavy) for heavy in HEAVY + SOURCE_ONLY):
        return f"<{target}> in a header: it belongs into a .cpp"
    return None


def area_of(parts):
    """A module of src; a verb of the command line (verb_plan.cpp, verb_plan_show.cpp and plan_x.cpp are one); else a folder."""
    if parts[0] == "apps":
        return f"{parts[1]} {parts[-1].split('.')[0].removeprefix('verb_').split('_')[0]}"
    return "/".join(parts[:2]) if len(parts) > 2 else parts[0]


def check():
    findings = Findings("include direction")
    table = read_table(findings)
    files = code_files()
    heavy_users = collections.defaultdict(set)
    for path in files:
        parts = path.relative_to(ROOT).parts
        if parts[0] == "src" and parts[1] not in table:
            findings.add(path, 1, f"src/{parts[1]} is not in cmake/modules.cmake")
            continue
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            target = match.group(2)
            why = check_quoted(target, parts, table) if match.group(1) == '"' else check_angled(target, path, parts)
            if why:
                findings.add(path, number, why)
            for heavy in HEAVY:
                if target.startswith(heavy) and not path.stem.endswith("_test"):
                    if parts[0] not in HEAVY_AT_HOME.get(heavy, ()):
                        heavy_users[(area_of(parts), heavy)].add(path)
    for (area, heavy), users in sorted(heavy_users.items()):
        if len(users) > HEAVY_FILES_A_MODULE:
            names = ", ".join(sorted(user.name for user in users))
            findings.add(min(users), 1, f"{heavy} in {len(users)} files of {area} (at most {HEAVY_FILES_A_MODULE}): {names}")
    return findings.finish(len(files))


if __name__ == "__main__":
    main(check)
