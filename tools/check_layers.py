#!/usr/bin/python3
"""Checks who includes whom against tools/layers.txt. Prints every violation; exit status 1 if there is one.

  check_layers.py [ROOT]        the tree to check, by default the one this script is in
  check_layers.py --self-test   checks the checker on a small tree that breaks each kind of rule
"""
import fnmatch
import os
import re
import sys
import tempfile

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]', re.MULTILINE)
NOT_CODE = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
SUFFIXES = (".h", ".hpp", ".cc", ".cpp", ".c")
# Folders whose sources must be named by an `allow` line.
ROOTS = ("src", "include", "examples", "sim", "tests", "bench", "fuzz")


class Rules:
    def __init__(self, path):
        self.allow, self.forbid, self.words = {}, [], []
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                line = line.split("#")[0].strip()
                if not line:
                    continue
                match = re.fullmatch(r"(allow|forbid|words)\s+([^\s:]+):\s*(.*)", line)
                if not match:
                    sys.exit(f"{path}:{number}: expected 'allow|forbid|words FOLDER: ...'")
                kind, folder, items = match[1], match[2], match[3].split()
                if kind == "allow":
                    self.allow[folder] = items
                elif kind == "forbid":
                    self.forbid.append((folder, [item.strip("<>") for item in items]))
                else:
                    self.words.append((folder, items))


def below(path, folder):
    return path.startswith(folder + "/")


def is_test(path):
    return bool(re.search(r"_test\.(cc|h)$", path)) or below(path, "tests")


def layer_of(include, root):
    """The layer a quoted or angle include belongs to, as named in layers.txt; None for what is not ours."""
    if include.startswith("locum/") and os.path.exists(os.path.join(root, "include", include)):
        return "locum"
    if include.endswith(".pb.h"):
        return "proto"
    if os.path.exists(os.path.join(root, "src", include)):
        return os.path.dirname(include)
    return None


def check_file(path, text, rules, root):
    folders = [folder for folder in rules.allow if below(path, folder)]
    if not folders:
        yield f"{path}: no `allow` line in tools/layers.txt covers this folder"
        return
    folder = max(folders, key=len)
    own = folder[len("src/"):] if below(folder, "src") else folder
    allowed = rules.allow[folder]
    for bracket, include in INCLUDE.findall(text):
        layer = layer_of(include, root)
        if layer is not None:
            fits = layer == own or below(layer, own) or include in allowed
            fits = fits or any(layer == item or below(layer, item) for item in allowed)
            if not fits:
                yield f'{path}: includes "{include}"; {folder} may include only: {" ".join([own] + allowed)}'
        elif ".." in include.split("/"):
            yield f'{path}: includes "{include}"; name headers from src/, not by ".."'
        if is_test(path):
            continue
        for where, patterns in rules.forbid:
            if below(path, where) and any(fnmatch.fnmatch(include, pattern) for pattern in patterns):
                yield f"{path}: includes <{include}>, which is forbidden in {where}"
    if is_test(path):
        return
    code = NOT_CODE.sub(" ", text)
    for where, words in rules.words:
        if below(path, where):
            for word in words:
                if re.search(rf"\b{re.escape(word)}\b", code):
                    yield f"{path}: uses `{word}`, which is forbidden in {where}"


def check_tree(root):
    rules = Rules(os.path.join(root, "tools", "layers.txt"))
    problems, count = [], 0
    for top in ROOTS:
        for folder, folders, files in os.walk(os.path.join(root, top)):
            folders.sort()
            for name in sorted(files):
                if name.endswith(SUFFIXES):
                    full = os.path.join(folder, name)
                    with open(full, encoding="utf-8") as source:
                        text = source.read()
                    count += 1
                    problems.extend(check_file(os.path.relpath(full, root), text, rules, root))
    return problems, count


def self_test():
    files = {
        "tools/layers.txt": "allow src/base:\nallow src/core: base\nforbid src/core: <thread> <sys/*>\n"
                            "words src/core: getenv\nallow src/adapters/a: base\nallow src/adapters/b: base\n",
        "src/base/ids.h": "#include <string>\n",
        "src/base/bad.h": '#include "core/core.h"\n',
        "src/core/core.h": '#include "base/ids.h"\n// getenv "in a comment"\n',
        "src/core/bad.cc": '#include <thread>\n#include <sys/stat.h>\nint x = getenv("A") != 0;\n',
        "src/core/core_test.cc": "#include <thread>\n",
        "src/adapters/a/a.h": "",
        "src/adapters/b/bad.cc": '#include "adapters/a/a.h"\n',
        "src/stray/bad.cc": "",
        "src/adapters/b/up.cc": '#include "../../base/ids.h"\n',
    }
    expected = sorted(["src/base/bad.h"] + ["src/core/bad.cc"] * 3 +
                      ["src/adapters/b/bad.cc", "src/adapters/b/up.cc", "src/stray/bad.cc"])
    with tempfile.TemporaryDirectory() as root:
        for path, text in files.items():
            os.makedirs(os.path.dirname(os.path.join(root, path)), exist_ok=True)
            with open(os.path.join(root, path), "w", encoding="utf-8") as out:
                out.write(text)
        found = sorted(problem.split(":")[0] for problem in check_tree(root)[0])
    if found != expected:
        sys.exit(f"self-test: expected violations in {expected}, found {found}")
    print("self-test: every kind of violation is found, and nothing else")


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    problems, count = check_tree(root)
    for problem in problems:
        print(problem)
    print(f"layers: {count} files, {len(problems)} violations")
    if problems or count == 0:
        sys.exit(1)


if __name__ == "__main__":
    main()
