"""Prints a report of ``doctor``, as text or as a JSON object."""

from __future__ import annotations

from typing import Final

from wormhole.model.findings import Report
from wormholectl.show.printer import counted, next_step_lines, print_json, print_line

__all__ = ["show_report"]

_SIGNS: Final = {"ok": ("ok       ", "green"), "warn": ("note     ", "yellow"), "problem": ("PROBLEM  ", "bold red")}


def show_report(found: Report, as_json: bool) -> None:
    """Print facts, findings with their next steps, and the number of findings of each severity."""
    report = found.as_dict()
    if as_json:
        print_json(report)
        return
    print_line([(report["url"], "bold")])
    for name, fact in report["facts"].items():
        print_line([(f"  {name}: ", "dim"), (fact, "")])
    for finding in report["findings"]:
        sign, style = _SIGNS[finding["severity"]]
        code = f" [{finding['code']}]" if finding["code"] else ""
        print_line([(sign, style), (f"{finding['check']}{code}: {finding['what']}", "")])
        if finding["because"]:
            print_line([(f"{'':9}{finding['because']}", "dim")])
        if finding["next_step"]:
            for line in next_step_lines(finding["next_step"]):
                print_line([(f"{'':9}{line}", "")])
    severities = [finding["severity"] for finding in report["findings"]]
    problems, notes = severities.count("problem"), severities.count("warn")
    print_line([(f"{counted(problems, 'problem')}, {counted(notes, 'note')}", "bold")])
