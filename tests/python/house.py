"""Prints numbers about the structure of a checkout: `just house`, or `just house DIR` for another checkout.

Code is what is left without comments, blank lines, tests and generated files. A circle is a set of files of one module
that use each other (a strongly connected component of the uses among them).
"""

import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()


def crates():
    """Returns the folders of the workspace's crates, without those of tests and examples."""
    members = re.search(r"members = \[(.*?)\]", (ROOT / "Cargo.toml").read_text(), re.S).group(1)
    names = re.findall(r'"([^"]+)"', members)
    return [ROOT / name for name in names if name not in ("tests", "examples")]


def is_test(path):
    inside = path.relative_to(ROOT)
    return path.stem in ("tests", "testing") or "tests" in inside.parts or "ui" in inside.parts


def without_tests(lines):
    """Drops each item after `#[cfg(test)]`, up to the line that ends it."""
    kept, skipping = [], None
    for line in lines:
        if skipping is not None:
            deeper = line.startswith(skipping + " ")
            if not deeper and (line.endswith(";") or line.rstrip() == skipping + "}"):
                skipping = None
            continue
        if line.strip() == "#[cfg(test)]":
            skipping = line[: len(line) - len(line.lstrip())]
            continue
        kept.append(line)
    return kept


def code(path):
    lines = without_tests(path.read_text().splitlines())
    return [line for line in lines if line.strip() and not line.strip().startswith("//")]


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


def main():
    total, types, functions, closures, long_closures, booleans = 0, Counter(), [], 0, 0, 0
    print("code lines")
    for crate in crates():
        lines = 0
        for path in sources(crate):
            own = code(path)
            lines += len(own)
            text = "\n".join(own)
            types.update(set(re.findall(r"\b(?:struct|enum|trait|union) (\w+)", text)) |
                         set(re.findall(r"^(?:pub(?:\([^)]*\))? )?type (\w+)", text, re.M)))
            functions += re.findall(r"\bfn (\w+)", text)
            for match in re.finditer(r"^(\s*)let (?:mut )?\w+(?:: [^=]+)? =\s*(?:move )?\|", text, re.M):
                closures += 1
                body = text[match.start():].split("\n")
                end = next((i for i, line in enumerate(body) if i and line.strip() and
                            len(line) - len(line.lstrip()) <= len(match.group(1))), 1)
                long_closures += end + (body[end].strip() in ("};", "}")) > 3 if end > 1 else 0
            booleans += sum(1 for line in own if re.match(r"\s*true =>", line) or re.search(r"\{ true =>", line))
        total += lines
        print(f"  {crate.relative_to(ROOT)}: {lines}")
    print(f"  all: {total}")
    found = [(crate, room, files) for crate in crates() for room, files in circles(crate)]
    large = [circle for circle in found if len(circle[2]) >= 3]
    print(f"circles of three files or more in a module: {len(large)}; of two: {len(found) - len(large)}")
    for crate, room, files in sorted(found, key=lambda circle: -len(circle[2])):
        print(f"  {crate.relative_to(ROOT)} {room}: {', '.join(files)}")
    several = [name for name, n in types.items() if n > 1]
    print(f"type names with more than one definition: {len(several)} of {len(types)}")
    one = sum("_" not in name for name in functions)
    print(f"functions named with one word: {100 * one / len(functions):.0f} % of {len(functions)}")
    print(f"closures bound by `let`: {closures}, longer than three lines: {long_closures}")
    print(f"`match` on a boolean: {booleans}")
    for page in ("ARCHITECTURE.md", "CONTRIBUTING.md"):
        print(f"lines of {page}: {len((ROOT / page).read_text().splitlines())}")


main()
