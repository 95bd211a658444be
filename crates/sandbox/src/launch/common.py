# What every launcher begins with.
import builtins
import sys

# Modules are the interpreter's, and none of the directory.
sys.path[:] = [entry for entry in sys.path if entry]

import random


def settle(seed):
    """Makes the process ready for code that is not ours."""
    # Without `site`, which looks for what the user has installed, nobody defines them.
    builtins.exit = builtins.quit = sys.exit
    # From Python 3.11 on, numbers of more than 4,300 digits are not written otherwise.
    if hasattr(sys, "set_int_max_str_digits"):
        sys.set_int_max_str_digits(0)
    random.seed(seed)


def lacks(source):
    """True if a program reads a name that neither it nor Python defines."""
    import symtable

    def below(table):
        yield table
        for child in table.get_children():
            yield from below(child)

    try:
        top = symtable.symtable(source, "program.py", "exec")
    except Exception:
        return False
    made, read = set(dir(builtins)), set()
    for table in below(top):
        for symbol in table.get_symbols():
            binds = symbol.is_assigned() or symbol.is_imported()
            if binds and (table is top or symbol.is_declared_global()):
                made.add(symbol.get_name())
            elif symbol.is_global() and symbol.is_referenced():
                read.add(symbol.get_name())
    return not read <= made


def execute(preamble, source, space):
    """Runs a program in a module's names, after the preamble if it lacks names."""
    if preamble and lacks(source):
        exec(compile(preamble, "preamble.py", "exec"), space)
    exec(compile(source, "program.py", "exec"), space)


