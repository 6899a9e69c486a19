#!/usr/bin/env python3
"""The lint scripts themselves: each finding they exist for is found, and good code is left alone."""

import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "lint"))

import check_includes  # noqa: E402
import check_sizes  # noqa: E402
import check_words  # noqa: E402
from sources import ROOT, Findings, blank_literals  # noqa: E402

TABLE = {"base": (0, []), "schedule": (1, ["base"]), "policy": (3, ["base", "schedule"])}


def found(text):
    return [(name, text.count("\n", start, end) + 1, parameters)
            for name, start, body, end, parameters in check_sizes.functions(blank_literals(text))]


class Functions(unittest.TestCase):
    def test_plain_member_and_operator(self):
        text = "namespace a {\nint f(int x, std::map<int, int> y) {\n  return 1;\n}\nstruct S {\n  bool operator()(int a, int b) const { return a < b; }\n};\n}\n"
        self.assertEqual(found(text), [("f", 3, 2), ("operator", 1, 2)])

    def test_constructor_with_braces_in_its_list(self):
        self.assertEqual(found("A::A(int a, int b, int c) : a_{a}, b_(b) {\n  go();\n}\n"), [("A::A", 3, 3)])

    def test_trailing_return_type_and_template(self):
        self.assertEqual(found("template <class T, class U>\nauto f(T t) -> Result<U> {\n}\n"), [("f", 3, 1)])

    def test_data_and_types_are_no_functions(self):
        self.assertEqual(found("const int kTable[] = {1, 2};\nenum class E { kA };\nstruct P { int a = f(1); std::array<int, 2> b{}; };\n"), [])

    def test_braces_in_text_do_not_count(self):
        self.assertEqual(found('void f() {\n  g("}}}");  // }\n  h(R"x(}})x");\n}\nvoid g() {}\n'), [("f", 4, 0), ("g", 1, 0)])

    def test_nesting(self):
        self.assertEqual(check_sizes.deepest_control("for (int i = 0; i < 2; ++i) { if (a) { while (b) { c(); } } }"), 3)
        self.assertEqual(check_sizes.deepest_control("auto f = [&] { if (a) { b(); } };"), 1)
        self.assertEqual(check_sizes.deepest_control("if (a) { b(); } else { if (c) { d(); } }"), 2)


class Includes(unittest.TestCase):
    def quoted(self, target, *parts):
        return check_includes.check_quoted(target, parts, TABLE)

    def test_direction(self):
        self.assertIsNone(self.quoted("base/check.h", "src", "policy", "policy.h"))
        self.assertIsNone(self.quoted("theseus/types.h", "src", "base", "hash.h"))
        self.assertIn("may not include", self.quoted("policy/policy.h", "src", "schedule", "op.h"))

    def test_paths_start_below_src(self):
        self.assertIn("not below src/", self.quoted("check.h", "src", "base", "hash.h"))

    def test_public_headers_are_poor(self):
        self.assertIn("public header", self.quoted("base/check.h", "include", "theseus", "types.h"))
        header = ROOT / "include" / "theseus" / "types.h"
        self.assertIsNone(check_includes.check_angled("vector", header, ("include", "theseus", "types.h")))
        self.assertIn("public header", check_includes.check_angled("fmt/format.h", header, ("include", "theseus", "types.h")))

    def test_heavy_headers_stay_out_of_headers(self):
        header = ROOT / "src" / "schedule" / "json.h"
        self.assertIn("in a header", check_includes.check_angled("nlohmann/json.hpp", header, ("src", "schedule", "json.h")))

    def test_a_verb_is_an_area(self):
        area = check_includes.area_of
        self.assertEqual(area(("apps", "theseus", "verb_plan.cpp")), area(("apps", "theseus", "verb_plan_show.cpp")))
        self.assertNotEqual(area(("apps", "theseus", "verb_plan.cpp")), area(("apps", "theseus", "demo_message.cpp")))
        self.assertEqual(area(("src", "runtime", "a.cpp")), "src/runtime")

    def test_the_table_is_read(self):
        findings = Findings("table")
        table = check_includes.read_table(findings)
        self.assertEqual(findings.lines, [])
        self.assertIn("base", table["runtime"][1])


class Words(unittest.TestCase):
    def names(self, text):
        findings = Findings("words")
        check_words.check_identifiers(ROOT / "x.cpp", blank_literals(text), findings)
        return findings.lines

    def test_abbreviations(self):
        for name in ("buf", "recvBuf", "cnt_", "kCfgName", "Idx2nd"):
            self.assertEqual(len(self.names(f"int {name} = 0;")), 1, name)
        for name in ("buffer", "rebuffed", "context", "encounter"):
            self.assertEqual(self.names(f"int {name} = 0;"), [], name)
        self.assertEqual(self.names('read("cnt");  // buf'), [])

    def test_memory_orders_need_an_argument(self):
        for comment, count in (("", 1), ("// pairs with the release in f\n", 0)):
            findings = Findings("words")
            text = f"{comment}a.store(1, std::memory_order_release);\n"
            check_words.check_orders(ROOT / "x.cpp", text, blank_literals(text), findings)
            self.assertEqual(len(findings.lines), count)


if __name__ == "__main__":
    unittest.main()
