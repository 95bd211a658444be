"""Prints numbers about the structure of a checkout: `just house`, or `just house DIR` for another checkout.

`just house . --list functions` (or `types`, `closures`, `matches`, `circles`) prints what each number counts, by crate.

Code is what is left without comments, blank lines, tests and generated files. A circle is a set of files of one module
that use each other (a strongly connected component of the uses among them).
"""

import argparse
import re
import sys
from collections import defaultdict
from pathlib import Path

LISTS = ("functions", "types", "closures", "matches", "circles")

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("dir", nargs="?", default=".", help="the checkout")
parser.add_argument("--list", choices=LISTS, help="print what a number counts, by crate")
ARGUMENTS = parser.parse_args()
ROOT = Path(ARGUMENTS.dir).resolve()


def crates():
    """Returns the folders of the workspace's crates, without those of tests and examples."""
    members = re.search(r"members = \[(.*?)\]", (ROOT / "Cargo.toml").read_text(), re.S).group(1)
    names = re.findall(r'"([^"]+)"', members)
    return [ROOT / name for name in names if name not in ("tests", "examples")]


def is_test(path):
    inside = path.relative_to(ROOT)
    return path.stem in ("tests", "testing") or "tests" in inside.parts or "ui" in inside.parts


def without_tests(lines):
    """Returns the numbered lines without each item after `#[cfg(test)]`, up to the line that ends it."""
    kept, skipping = [], None
    for number, line in enumerate(lines, 1):
        if skipping is not None:
            deeper = line.startswith(skipping + " ")
            if not deeper and (line.endswith(";") or line.rstrip() == skipping + "}"):
                skipping = None
            continue
        if line.strip() == "#[cfg(test)]":
            skipping = line[: len(line) - len(line.lstrip())]
            continue
        kept.append((number, line))
    return kept


def numbered_code(path):
    """Returns the lines of code of a file, each with its number."""
    lines = without_tests(path.read_text().splitlines())
    return [(number, line) for number, line in lines if line.strip() and not line.strip().startswith("//")]


def code(path):
    return [line for _, line in numbered_code(path)]


def sources(crate):
    files = sorted((crate / "src").rglob("*.rs")) or sorted(crate.glob("*.rs"))
    generated = "// This file is @generated"
    return [path for path in files if not is_test(path) and not path.read_text().startswith(generated)]


def module_path(crate, path):
    parts = list(path.relative_to(crate / "src").with_suffix("").parts)
    return tuple(parts[:-1] if parts[-1] in ("mod", "lib", "main") else parts)


def names_after(text):
    """Returns the first names of a path or of a braced list of paths."""
    if not text.startswith("{"):
        match = re.match(r"\w+", text)
        return [match.group()] if match else []
    names, depth, start = [], 0, True
    for token in re.findall(r"\w+|[{},:]", text):
        if token == "{":
            depth += 1
        elif token == "}":
            depth -= 1
            if depth == 0:
                break
        elif token == ",":
            start = depth == 1
            continue
        elif start and depth == 1:
            names.append(token)
            start = False
    return names


def leads_below(module, text, modules):
    """Whether a path goes through a file to files below it: it uses these, which other prefixes find."""
    match = re.match(r"\w+::", text)
    names = names_after(text[match.end():]) if match else []
    return bool(names) and all(module + (name,) in modules for name in names)


def uses(own, text, modules):
    found = set()

    def visit(prefix, base):
        for match in re.finditer(r"(?<![\w:])" + re.escape(prefix), text):
            rest = text[match.end():]
            for name in names_after(rest):
                if name == "super":
                    continue
                inner = base + (name,)
                if not leads_below(inner, rest, modules):
                    found.add(inner if inner in modules else base)

    for module in modules:
        if module:
            visit("crate::" + "::".join(module) + "::", module)
            if module[:-1] == own:
                visit(module[-1] + "::", module)
    for up in range(1, len(own)):
        visit("super::" * up, own[: len(own) - up])
    found.discard(own)
    return {module for module in found if module in modules and module}


def components(graph):
    """Returns the strongly connected components of a graph (Tarjan)."""
    index, low, stack, on, out = {}, {}, [], set(), []

    def connect(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        on.add(v)
        for w in graph[v]:
            if w not in index:
                connect(w)
                low[v] = min(low[v], low[w])
            elif w in on:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            component = []
            while True:
                w = stack.pop()
                on.discard(w)
                component.append(w)
                if w == v:
                    break
            out.append(component)

    sys.setrecursionlimit(10_000)
    for v in list(graph):
        if v not in index:
            connect(v)
    return out


def circles(crate):
    """Returns the circles of files within each top module of a crate."""
    files = {module_path(crate, path): path for path in sources(crate) if crate / "src" in path.parents}
    rooms = defaultdict(set)
    for module in files:
        if module:
            rooms[module[0]].add(module)
    for room, modules in rooms.items():
        graph = {}
        for module in modules:
            lines = [line.split("//")[0].strip() for line in code(files[module])]
            # A module that only passes a name on does not use it.
            text = re.sub(r"\bpub(\([^)]*\))? use [^;]*;", "", " ".join(lines))
            graph[module] = uses(module, text, modules)
        for component in components(graph):
            if len(component) > 1:
                yield room, sorted("::".join(module) for module in component)


class Source:
    """The code of a file, with the places of what is counted in it."""

    def __init__(self, crate, path):
        self.crate, self.path = crate, path
        numbered = numbered_code(path)
        self.numbers = [number for number, _ in numbered]
        self.lines = [line for _, line in numbered]
        self.text = "\n".join(self.lines)

    def place(self, at):
        """Returns the file and line of a position in the text."""
        number = self.numbers[self.text.count("\n", 0, at)]
        return f"{self.path.relative_to(ROOT)}:{number}"

    def functions(self):
        """Yields the place, the name and the line of each function."""
        for match in re.finditer(r"\bfn (\w+)", self.text):
            start = self.text.rfind("\n", 0, match.start()) + 1
            line = self.text[start : self.text.find("\n", match.end())].strip()
            yield self.place(match.start()), match.group(1), line

    def types(self):
        """Yields the place and the name of each type, once for each name."""
        seen = set()
        patterns = (r"\b(?:struct|enum|trait|union) ([A-Z]\w*)", r"^(?:pub(?:\([^)]*\))? )?type (\w+)")
        for pattern in patterns:
            for match in re.finditer(pattern, self.text, re.M):
                if match.group(1) not in seen:
                    seen.add(match.group(1))
                    yield self.place(match.start(1)), match.group(1)

    def closures(self):
        """Yields the place, the first line and the number of lines of each closure bound by `let`."""
        for match in re.finditer(r"^(\s*)let (?:mut )?\w+(?:: [^=]+)? =\s*(?:move )?\|", self.text, re.M):
            body = self.text[match.start() :].lstrip("\n").split("\n")
            indent = len(match.group(1).lstrip("\n"))
            deeper = lambda line: len(line) - len(line.lstrip()) > indent
            end = next((i for i, line in enumerate(body) if i and not deeper(line)), 1)
            length = end + (body[end].strip() in ("};", "}")) if end > 1 else 1
            yield self.place(match.start() + match.group(0).index("let")), body[0].strip(), length

    def matches(self):
        """Yields the place and the line of each arm for `true`."""
        for number, line in zip(self.numbers, self.lines):
            if re.match(r"\s*true =>", line) or re.search(r"\{ true =>", line):
                yield f"{self.path.relative_to(ROOT)}:{number}", line.strip()


def several(all_sources):
    """Returns the names of types with more than one definition, each with its places by crate."""
    definitions = defaultdict(list)
    for source in all_sources:
        for place, name in source.types():
            definitions[name].append((source.crate, place))
    return len(definitions), {name: places for name, places in definitions.items() if len(places) > 1}


def by_crate(what, all_sources):
    """Yields the crate and the line to print of everything that a number counts."""
    if what == "circles":
        for crate in crates():
            for room, files in circles(crate):
                yield crate, f"{room}: {', '.join(files)}"
    elif what == "types":
        for name, places in sorted(several(all_sources)[1].items()):
            for crate, place in places:
                others = [other for _, other in places if other != place]
                yield crate, f"{place} {name} (also {', '.join(others)})"
    for source in all_sources:
        if what == "functions":
            for place, name, line in source.functions():
                if "_" not in name:
                    yield source.crate, f"{place} {name}: {line}"
        elif what == "closures":
            for place, line, length in source.closures():
                if length > 3:
                    yield source.crate, f"{place} {line} ({length} lines)"
        elif what == "matches":
            for place, line in source.matches():
                yield source.crate, f"{place} {line}"


def print_list(what, all_sources):
    found = defaultdict(list)
    for crate, line in by_crate(what, all_sources):
        found[crate].append(line)
    for crate, lines in found.items():
        total = ""
        if what == "functions":
            total = f" of {sum(len(list(source.functions())) for source in all_sources if source.crate == crate)}"
        print(f"{crate.relative_to(ROOT)}: {len(lines)}{total}")
        for line in lines:
            print(f"  {line}")


def print_numbers(all_sources):
    print("code lines")
    for crate in crates():
        print(f"  {crate.relative_to(ROOT)}: {sum(len(s.lines) for s in all_sources if s.crate == crate)}")
    print(f"  all: {sum(len(source.lines) for source in all_sources)}")
    found = [(crate, room, files) for crate in crates() for room, files in circles(crate)]
    large = [circle for circle in found if len(circle[2]) >= 3]
    print(f"circles of three files or more in a module: {len(large)}; of two: {len(found) - len(large)}")
    for crate, room, files in sorted(found, key=lambda circle: -len(circle[2])):
        print(f"  {crate.relative_to(ROOT)} {room}: {', '.join(files)}")
    names, twice = several(all_sources)
    print(f"type names with more than one definition: {len(twice)} of {names}")
    functions = [name for source in all_sources for _, name, _ in source.functions()]
    one = sum("_" not in name for name in functions)
    print(f"functions named with one word: {100 * one / len(functions):.0f} % of {len(functions)}")
    closures = [length for source in all_sources for _, _, length in source.closures()]
    print(f"closures bound by `let`: {len(closures)}, longer than three lines: {sum(n > 3 for n in closures)}")
    print(f"`match` on a boolean: {sum(len(list(source.matches())) for source in all_sources)}")
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        print(f"lines of {page}: {len((ROOT / page).read_text().splitlines())}")


def main():
    all_sources = [Source(crate, path) for crate in crates() for path in sources(crate)]
    if ARGUMENTS.list:
        print_list(ARGUMENTS.list, all_sources)
    else:
        print_numbers(all_sources)


main()
