# Reads the Python that tasks bring and says which of it can never run. Nothing of it is run here.
import ast
import builtins
import importlib.util
import json
import sys
import warnings


def parsed(source, kind):
    try:
        return compile(source, kind, "exec", ast.PyCF_ONLY_AST), source
    except SyntaxError:
        if kind != "setup":
            raise
    # It may be the beginning of a function.
    source += "\n    pass\n"
    return compile(source, kind, "exec", ast.PyCF_ONLY_AST), source


def defines(tree, name):
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name:
            return True
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            return True
        if isinstance(node, ast.alias) and name in (node.name, node.asname, "*"):
            return True
    return False


def modules(tree):
    """The modules that are imported whatever happens."""
    for node in tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module


ENDS = {"sys.exit", "os._exit", "os.abort", "exit", "quit", "SystemExit"}


def dotted(node):
    """`a.b` as text; for a call, of what is called."""
    if isinstance(node, ast.Call):
        node = node.func
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return f"{node.value.id}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else None


def ends(tree, bodies):
    """The first statement that ends the process and is reached whatever happens: in these bodies, and in those of the
    tests' functions that they call."""
    functions = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    # What the tests put in its place does what they want.
    replaced = {dotted(node) for node in ast.walk(tree) if isinstance(getattr(node, "ctx", None), ast.Store)}
    known = ENDS - replaced - set(functions)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module in ("sys", "os"):
            known.update(alias.asname or alias.name for alias in node.names if f"{node.module}.{alias.name}" in ENDS)
    seen = set()
    bodies = list(bodies)
    while bodies:
        for statement in bodies.pop(0):
            if isinstance(statement, ast.Raise) and dotted(statement.exc) == "SystemExit":
                return statement
            if isinstance(statement, (ast.Raise, ast.Return)):
                break
            if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
                continue
            name = dotted(statement.value)
            if name in known - {"SystemExit"}:
                return statement
            if name in functions and name not in seen:
                seen.add(name)
                bodies.append(functions[name].body)
    return None


def there(module):
    try:
        return importlib.util.find_spec(module.split(".")[0]) is not None
    except ValueError:
        return True


def trouble(source, kind):
    try:
        tree, source = parsed(source, kind)
        compile(source, kind, "exec")
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for module in modules(tree):
        if not there(module):
            return f"there is no module `{module}` in the sandbox"
    if kind == "test" and not defines(tree, "check"):
        return "`test` defines no function `check`"
    checks = [node.body for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    end = ends(tree, [tree.body] + (checks if kind == "test" else []))
    if end and kind != "code":
        text = ast.get_source_segment(source, end)
        return f"its tests end their own process on line {end.lineno}: `{text}`; leave that out"
    return None


def names(source):
    """The names that some code makes, anywhere in it, and those that it reads."""
    made, read = set(), []
    for node in ast.walk(parsed(source, "setup")[0]):
        if isinstance(node, ast.Name):
            read.append(node.id) if isinstance(node.ctx, ast.Load) else made.add(node.id)
        elif isinstance(node, ast.alias):
            made.add((node.asname or node.name).split(".")[0])
        else:
            made.update(getattr(node, key, None) or "" for key in ("name", "arg", "rest") if type(getattr(node, key, None)) is str)
    return made, read


def unknown(texts, entry):
    """The first name in a task's texts that nothing defines; tests of one task share their names."""
    made, read = {*dir(builtins), entry, "candidate", "check"}, []
    for source in texts:
        more, reads = names(source)
        made |= more
        read += reads
    if "*" in made:
        return None
    return next((name for name in read if name not in made), None)


warnings.simplefilter("ignore")
tasks = {}
for text in json.load(sys.stdin):
    what = trouble(text["source"], text["kind"])
    if what:
        print(json.dumps([text["task"], what[:300], True]), flush=True)
    elif text["kind"] != "code":
        tasks.setdefault((text["task"], text["entry"]), []).append(text["source"])
for (task, entry), texts in tasks.items():
    name = unknown(texts, entry)
    if name:
        print(json.dumps([task, f"`{name[:100]}`", False]), flush=True)
