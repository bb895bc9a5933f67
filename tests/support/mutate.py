#!/usr/bin/env python3
"""Copies of sources in which one broken rule at a time can be chosen at run time.

usage: mutate.py LIST FILE OUTPUT DEPENDENCIES   a copy of one source or header, and what it depends on
       mutate.py LIST --names OUTPUT             the mutants' names; every entry must name a file that is there

Only simulators and tests of their own are built with these copies, and the real sources know nothing of them. LIST is a
file that sets MUTANTS. Each entry names a file, from the root of the tree, a passage that must occur in it exactly
once, in which «…» marks what is broken, and the mutants of that place: what stands there instead. An expression becomes
a choice between expressions, a statement one between statements. A name that occurs twice is one mutant in two places.
A passage that is no longer found is an error: who changes a rule changes its mutants, and who adds a rule adds one.
A LIST whose checks are many may set CHECKS: for each file, those that must notice its mutants.
"""
import pathlib
import runpy
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]


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
        changes.append((at, len(broken), mutants))
    # From the end on, and a place within another one before that.
    grown = []
    for at, length, mutants in sorted(changes, key=lambda change: (-change[0], change[1])):
        end = at + length + sum(by for place, by in grown if place < at + length)
        instead = choice(text[at:end], mutants, number_of)
        text = text[:at] + instead + text[end:]
        grown.append((at, len(instead) - (end - at)))
    once = "#pragma once\n" if file_name.endswith(".hpp") else ""
    return f'{once}#include <bit>\n#include "tests/sim/support/mutant.hpp"\n#line 1 "{file_name}"\n{text}'


def checks_of(name, list_of_mutants, checks):
    """What must notice a mutant, of all its places; nothing if the list does not say."""
    files = dict.fromkeys(file_name for file_name, _, instead in list_of_mutants if name in instead)
    return ":".join(checks[file_name] for file_name in files) if checks else ""


def write_names(list_of_mutants, checks, output):
    quoted = "".join(
        f'    {{"{name}", "{checks_of(name, list_of_mutants, checks)}"}},\n' for name in names(list_of_mutants)
    )
    output.write_text(
        '#include "tests/sim/support/mutant.hpp"\n\nnamespace tarn::sim {\n\nunsigned mutant = 0;\n\n'
        f"const std::vector<Mutant> mutants = {{\n{quoted}}};\n\n}}  // namespace tarn::sim\n"
    )


def main():
    path, *arguments = sys.argv[1:]
    list_file = runpy.run_path(path)
    list_of_mutants = list_file["MUTANTS"]
    if arguments[0] == "--names":
        for file_name in {entry[0] for entry in list_of_mutants}:
            mutated((ROOT / file_name).read_text(), file_name, list_of_mutants)
        write_names(list_of_mutants, list_file.get("CHECKS"), pathlib.Path(arguments[1]))
        return
    source, output, dependencies = (pathlib.Path(argument) for argument in arguments)
    file_name = source.resolve().relative_to(ROOT).as_posix()
    output.write_text(mutated(source.read_text(), file_name, list_of_mutants))
    dependencies.write_text(f"{output}: {path} {pathlib.Path(__file__).resolve()}\n")


main()
