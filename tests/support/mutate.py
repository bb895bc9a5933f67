"""Copies of sources in which one broken rule at a time can be chosen at run time.

Only a simulator is built with these copies, and the real sources know nothing of them. Each entry of the list names a
file, a passage that must occur in it exactly once, in which «…» marks what is broken, and the mutants of that place:
what stands there instead. An expression becomes a choice between expressions, a statement one between statements. A
name that occurs twice is one mutant in two places. A passage that is no longer found is an error: who changes a rule
changes its mutants, and who adds a rule adds one.
"""
import pathlib
import sys


def names(mutants):
    return list(dict.fromkeys(name for _, _, instead in mutants for name in instead))


def choice(broken, mutants, number_of):
    """The text that stands in the place of `broken`."""
    chosen = [(f"(tarn::sim::mutant == {number_of[name]})", text) for name, text in mutants.items()]
    if broken.endswith((";", "}")):
        choices = "".join(f"if {test} {{ {text} }} else " for test, text in chosen)
        return f"{{ {choices}{{ {broken} }} }}"
    return "(" + "".join(f"{test} ? ({text}) : " for test, text in chosen) + f"({broken}))"


def mutated(text, file_name, list_of_mutants):
    """The text of a file with all mutants of it."""
    number_of = {name: number for number, name in enumerate(names(list_of_mutants), 1)}
    changes = []
    for of_file, passage, mutants in list_of_mutants:
        if of_file != file_name:
            continue
        before, broken, after = passage.replace("»", "«").split("«")
        plain = before + broken + after
        if text.count(plain) != 1:
            sys.exit(f"mutants: {text.count(plain)} times in {file_name}: {plain}")
        at = text.index(plain) + len(before)
        changes.append((at, broken, choice(broken, mutants, number_of)))
    for at, broken, instead in sorted(changes, reverse=True):
        text = text[:at] + instead + text[at + len(broken) :]
    once = "#pragma once\n" if file_name.endswith(".hpp") else ""
    return f'{once}#include <bit>\n#include "tests/sim/support/mutant.hpp"\n#line 1 "{file_name}"\n{text}'


def write_names(list_of_mutants, output):
    quoted = "".join(f'    "{name}",\n' for name in names(list_of_mutants))
    output.write_text(
        '#include "tests/sim/support/mutant.hpp"\n\nnamespace tarn::sim {\n\nunsigned mutant = 0;\n\n'
        f"const std::vector<const char*> mutant_names = {{\n{quoted}}};\n\n}}  // namespace tarn::sim\n"
    )


def main(list_of_mutants):
    """All sources of some directories and those below; their names are paths from there."""
    sources, output = [pathlib.Path(argument) for argument in sys.argv[1:-1]], pathlib.Path(sys.argv[-1])
    for source in sources:
        for file in sorted(source.rglob("*.cpp")):
            name = file.relative_to(source).as_posix()
            copy = output / f"mutant_{name.replace('/', '_')}"
            copy.write_text(mutated(file.read_text(), name, list_of_mutants))
    write_names(list_of_mutants, output / "mutant_names.cpp")


def main_of_files(list_of_mutants, root):
    """One file at a time, with what it depends on: FILE OUTPUT DEPENDENCIES; or their names: --names OUTPUT. Files are
    named from the root."""
    if sys.argv[1] == "--names":
        for file_name in {entry[0] for entry in list_of_mutants}:
            mutated((root / file_name).read_text(), file_name, list_of_mutants)
        write_names(list_of_mutants, pathlib.Path(sys.argv[2]))
        return
    source, output, dependencies = (pathlib.Path(argument) for argument in sys.argv[1:])
    file_name = str(source.resolve().relative_to(root))
    output.write_text(mutated(source.read_text(), file_name, list_of_mutants))
    dependencies.write_text(f"{output}: {pathlib.Path(sys.argv[0]).resolve()} {__file__}\n")
