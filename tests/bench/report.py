#!/usr/bin/env python3
"""Turns what a bench measured into tables, prints them, and puts them into its section of docs/benchmarks.md.

RESULTS has a line per measurement: table, case, server, IOPS, server's CPU time per operation in us. The n-th line of
a case and a server is of round n. Each figure is the median over the rounds; a ratio is the median of the rounds'
ratios, tarn to the peer. GOALS has a line per goal: table, case, peer, least ratio of IOPS, greatest ratio of CPU.
FIGURES has a line per figure that stands alone: what, value, unit, how much is allowed; medians, too.
With --text, a file has the tables ready made.
"""

import argparse
import datetime
import os
import platform
import re
import subprocess
from collections import defaultdict
from math import isnan, nan
from pathlib import Path
from statistics import median

SUBJECT = "tarn"


def read_results(path):
    results = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))  # table, case, server: (IOPS, CPU) per round
    for line in path.read_text().splitlines():
        table, case, server, iops, cpu_us = line.split("\t")
        results[table][case][server].append((float(iops), None if cpu_us == "-" else float(cpu_us)))
    return results


def figures(rounds):
    iops = median(iops for iops, _ in rounds)
    if rounds[0][1] is None:
        return f"{iops / 1000:.3g} k"
    cpu_us = median(cpu_us for _, cpu_us in rounds)
    return f"{iops / 1000:.3g} k, {cpu_us:.2g} µs" if cpu_us < 10 else f"{iops / 1000:.3g} k, {cpu_us:.0f} µs"


def ratios(subject, peer):
    """Of IOPS and of CPU time per operation; the rounds of one case are neighbours in time.

    Not a number where no round of the peer took as much as a tick of the clock.
    """
    pairs = list(zip(subject, peer))
    return tuple(median([s[i] / p[i] for s, p in pairs if p[i]] or [nan]) for i in (0, 1))


def times(ratio):
    return "–" if isnan(ratio) else f"× {ratio:.2f}"


def result_table(cases):
    peers = [server for server in next(iter(cases.values())) if server != SUBJECT]
    yield "| |" + f" {SUBJECT} |" + "".join(f" {peer} | IOPS | CPU |" for peer in peers)
    yield "|---" * (2 + 3 * len(peers)) + "|"
    for case, servers in cases.items():
        cells = [case, figures(servers[SUBJECT])]
        for peer in peers:
            iops, cpu = ratios(servers[SUBJECT], servers[peer])
            cells += [figures(servers[peer]), times(iops), times(cpu)]
        yield "| " + " | ".join(cells) + " |"


def goal_table(results, goals):
    yield "| goal | | IOPS | CPU per operation | |"
    yield "|---|---|---|---|---|"
    for table, case, peer, least_iops, most_cpu in goals:
        iops, cpu = ratios(results[table][case][SUBJECT], results[table][case][peer])
        holds = (least_iops == "-" or iops >= float(least_iops)) and (most_cpu == "-" or cpu <= float(most_cpu))
        iops_cell = "" if least_iops == "-" else f"{times(iops)}, at least {least_iops}"
        cpu_cell = "" if most_cpu == "-" else f"{times(cpu)}, at most {most_cpu}"
        yield f"| {case}, to {peer} | {table} | {iops_cell} | {cpu_cell} | {'holds' if holds else '**missed**'} |"


def figure_table(path):
    measured = defaultdict(list)
    limits = {}
    for line in path.read_text().splitlines():
        what, value, unit, limit = line.split("\t")
        measured[what].append(float(value))
        limits[what] = (float(limit), f" {unit}" if unit else "")
    if measured:
        yield from ["", "| | | goal | |", "|---|---|---|---|"]
    for what, values in measured.items():
        limit, unit = limits[what]
        holds = "holds" if median(values) <= limit else "**missed**"
        yield f"| {what} | {median(values):.3g}{unit} | at most {limit:g}{unit} | {holds} |"


def machine(directory):
    def first(pattern, path):
        found = re.search(pattern, Path(path).read_text())
        return found.group(1).strip() if found else "unknown"

    cpu = first(r"model name\s*:(.*)", "/proc/cpuinfo")
    memory_gib = int(first(r"MemTotal:\s*(\d+)", "/proc/meminfo")) / (1 << 20)
    system = first(r'PRETTY_NAME="(.*)"', "/etc/os-release")
    file_system = subprocess.run(
        ["findmnt", "-no", "FSTYPE", "--target", directory], check=True, capture_output=True, text=True
    ).stdout.strip()
    return (
        f"{os.cpu_count()} CPUs ({cpu}), {memory_gib:.0f} GiB, Linux {platform.release()}, {system}, {file_system}; "
        f"load average {os.getloadavg()[1]:.1f} at the end"
    )


def put_into(document, bench, text):
    begin, end = f"<!-- {bench}: begin -->", f"<!-- {bench}: end -->"
    pattern = re.compile(re.escape(begin) + ".*" + re.escape(end), re.DOTALL)
    before = document.read_text()
    after, count = pattern.subn(lambda _: f"{begin}\n{text}\n{end}", before)
    if count != 1:
        raise SystemExit(f"{document} has no place for {bench}: {begin} … {end}")
    document.write_text(after)


def measured_tables(arguments):
    results = read_results(arguments.results)
    goals = [line.split("\t") for line in arguments.goals.read_text().splitlines()]
    goals = [goal for goal in goals if goal[1] in results.get(goal[0], {})]  # a quick run leaves cases out
    rounds = max(len(rounds) for cases in results.values() for servers in cases.values() for rounds in servers.values())
    lines = [f"Medians of {rounds} rounds."]
    for table, cases in results.items():
        lines += ["", f"{table}:", "", *result_table(cases)]
    if goals:
        lines += ["", *goal_table(results, goals)]
    return lines + list(figure_table(arguments.figures))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bench")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--goals", type=Path)
    parser.add_argument("--figures", type=Path)
    parser.add_argument("--text", type=Path)
    parser.add_argument("--command", required=True)
    parser.add_argument("--directory", required=True, help="where the servers kept their files")
    parser.add_argument("--note", help="what was set on the machine")
    parser.add_argument("--document", type=Path)
    arguments = parser.parse_args()

    today = datetime.date.today().isoformat()
    note = f"; {arguments.note}" if arguments.note else ""
    lines = [f"`{arguments.command}`, {today}. {machine(arguments.directory)}{note}."]
    lines += [arguments.text.read_text().rstrip()] if arguments.text else measured_tables(arguments)
    text = "\n".join(lines)
    print(f"\n{text}")
    if arguments.document:
        put_into(arguments.document, arguments.bench, text)


if __name__ == "__main__":
    main()
