#!/usr/bin/env python3
"""Sizes: functions, files, parameters, nesting, columns. A brace-matching reader, not a compiler: it knows the style of this project."""

import re

from sources import Findings, blank_literals, code_files, main

FUNCTION_LINES = 70
FILE_LINES = 600
PARAMETERS = 4
NESTING = 3
COLUMNS = 110

CONTROL = re.compile(r"\b(if|for|while|switch|catch)\b[^{}]*\)\s*(\[\[\w+\]\]\s*)?$|\b(else|do|try)\s*$", re.S)
LAMBDA = re.compile(r"[^\[\]]\]\s*(\([^()]*\))?\s*(mutable\s*)?(->[^(){}]*)?$")
NOT_A_FUNCTION = re.compile(r"\b(namespace|class|struct|union|enum|requires)\b[^()]*$|\bextern\b[^()]*$|=\s*$|\breturn\s*$")
CLASS_HEAD = re.compile(r"(^|\s)(class|struct|union|enum|namespace)\s[^()]*$|(^|\s)(class|struct)\s+\w+[^()]*:\s*[^()]*$")
NAME_BEFORE = re.compile(r"([\w:~]+|operator\s*\S+?)\s*$")
SKIPPED_NAMES = {"decltype", "noexcept", "alignas", "__attribute__", "requires", "explicit", "if", "defined"}


def matching(text, start, opening, closing):
    depth = 0
    for position in range(start, len(text)):
        if text[position] == opening:
            depth += 1
        elif text[position] == closing:
            depth -= 1
            if depth == 0:
                return position
    return len(text) - 1


def parameter_list(head):
    """(name, text between the parentheses, what follows) of the function that `head` declares, or None."""
    position = 0
    while True:
        opening = head.find("(", position)
        if opening < 0:
            return None
        closing = matching(head, opening, "(", ")")
        name = NAME_BEFORE.search(head[:opening])
        if name and name.group(1) not in SKIPPED_NAMES:
            if name.group(1).startswith("operator") and head[closing + 1:].lstrip().startswith("("):
                opening = head.find("(", closing + 1)
                closing = matching(head, opening, "(", ")")
            return name.group(1), head[opening + 1:closing], head[closing + 1:]
        position = closing + 1


def count_parameters(text):
    if not text.strip() or text.strip() == "void":
        return 0
    depth = 0
    count = 1
    for character in text:
        if character in "(<[{":
            depth += 1
        elif character in ")>]}":
            depth -= 1
        elif character == "," and depth == 0:
            count += 1
    return count


def functions(text):
    """Yields (name, start offset, body start, body end, parameters) of each function with a body, outermost only."""
    head_start = 0
    position = 0
    while position < len(text):
        character = text[position]
        if character in ";}":
            head_start = position + 1
        elif character == "#" and text[text.rfind("\n", 0, position) + 1:position].strip() == "":
            end = text.find("\n", position)
            while end > 0 and text[end - 1] == "\\":
                end = text.find("\n", end + 1)
            position = len(text) if end < 0 else end
            head_start = position
            continue
        elif character == "(":
            position = matching(text, position, "(", ")")
        elif character == "{":
            head = text[head_start:position]
            signature = parameter_list(head)
            if CLASS_HEAD.search(head) or NOT_A_FUNCTION.search(head) or signature is None:
                # A namespace, a type or an initializer: look inside types, which hold functions.
                if CLASS_HEAD.search(head) or "extern" in head:
                    head_start = position + 1
                else:
                    position = matching(text, position, "{", "}")
            elif ":" in signature[2].replace("::", "") and re.search(r"[\w>]\s*$", head) and not re.search(
                    r"\b(const|override|final|noexcept)\s*$|->\s*[\w:<>&*, ]+$", head):
                position = matching(text, position, "{", "}")  # member{value} of a constructor's list
            else:
                end = matching(text, position, "{", "}")
                start = head_start + len(head) - len(head.lstrip())
                yield signature[0], start, position, end, count_parameters(signature[1])
                position = end
                head_start = end + 1
        position += 1


def deepest_control(body):
    """Deepest nesting of braces that belong to control statements."""
    deepest = 0
    stack = []
    last = 0
    for position, character in enumerate(body):
        if character == "{":
            head = body[last:position]
            is_control = bool(CONTROL.search(head)) and not LAMBDA.search(head)
            stack.append(is_control)
            deepest = max(deepest, sum(stack))
            last = position + 1
        elif character == "}":
            if stack:
                stack.pop()
            last = position + 1
        elif character == ";":
            # The semicolons of a for's head do not end its statement.
            if body[last:position].count("(") <= body[last:position].count(")"):
                last = position + 1
    return deepest


def check_file(path, findings):
    raw = path.read_text()
    lines = raw.splitlines()
    if len(lines) > FILE_LINES:
        findings.add(path, 1, f"{len(lines)} lines (at most {FILE_LINES})")
    for number, line in enumerate(lines, 1):
        if len(line) > COLUMNS:
            findings.add(path, number, f"{len(line)} columns (at most {COLUMNS})")
    text = blank_literals(raw)
    count = 0
    for name, start, body_start, body_end, parameters in functions(text):
        count += 1
        line = text.count("\n", 0, start) + 1
        length = text.count("\n", start, body_end) + 1
        if length > FUNCTION_LINES:
            findings.add(path, line, f"function {name} has {length} lines (at most {FUNCTION_LINES})")
        if parameters > PARAMETERS:
            findings.add(path, line, f"function {name} takes {parameters} parameters (at most {PARAMETERS}; else a struct)")
        nesting = deepest_control(text[body_start + 1:body_end])
        if nesting > NESTING:
            findings.add(path, line, f"function {name} nests {nesting} deep (at most {NESTING})")
    return count


def check():
    findings = Findings("sizes")
    checked = sum(check_file(path, findings) for path in code_files())
    return findings.finish(checked)


if __name__ == "__main__":
    main(check)
