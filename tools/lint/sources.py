"""What the lint scripts share: which files are checked, how a finding is printed, C++ text without comments and strings."""

import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
CODE_FOLDERS = ("include", "src", "apps", "bench", "tests", "examples", "plugins", "python")


def tracked_files():
    """All files of the project: those git knows and new ones that it does not ignore; without git, what lies in the folder."""
    try:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            cwd=ROOT, capture_output=True, check=True).stdout.decode()
        names = [name for name in listed.split("\0") if name]
    except (OSError, subprocess.CalledProcessError):
        names = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")
                 if path.is_file() and not {"build", ".git"} & set(path.relative_to(ROOT).parts)]
    return sorted(ROOT / name for name in set(names) if (ROOT / name).is_file())


def code_files(suffixes=(".h", ".cpp")):
    return [path for path in tracked_files()
            if path.suffix in suffixes and path.relative_to(ROOT).parts[0] in CODE_FOLDERS]


def blank_literals(text):
    """The same text, same length and lines, with comments and the insides of literals replaced by spaces."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9A-Za-z_])'(?:\\.|[^'\\\n])+'", re.S)

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return pattern.sub(blank, text)


class Findings:
    """Collects findings; finish() prints them and gives the exit code."""

    def __init__(self, name):
        self.name = name
        self.lines = []

    def add(self, path, line, message):
        self.lines.append(f"{path.relative_to(ROOT)}:{line}: {message}")

    def finish(self, checked):
        if checked == 0:
            self.lines.append(f"{self.name}: nothing to check was found; this check would pass for ever")
        for line in self.lines:
            print(line)
        print(f"{self.name}: {checked} checked, {len(self.lines)} findings")
        return 1 if self.lines else 0


def main(check):
    sys.exit(check())
