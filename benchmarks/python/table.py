"""The results as text."""

from __future__ import annotations

from benchmarks.python.contestants import Kind
from benchmarks.python.results import Result, Results
from benchmarks.python.task import Task

_SMALL = 64 << 20  # below this, GB/s says nothing

HEAD = ("task, who", "ms", "GB/s", "extra MB", "x best peer", "% of limit", "goals")


def _ratio(best: Result | None, result: Result, text: str) -> str:
    return (
        "" if best is None or result.kind in (Kind.LIMIT, Kind.MACHINE) else text.format(best.seconds / result.seconds)
    )


def _rows(task: Task, results: Results) -> list[tuple[str, ...]]:
    peer, limit = results.best_peer(), results.best_limit()
    rows = []
    for result in sorted(results.values(), key=lambda each: each.seconds):
        verdicts = [goal.check(result.who, results).reached for goal in task.goals.get(result.who, ())]
        reached = sum(verdict is True for verdict in verdicts)
        rate = f"{result.payload_bytes / result.seconds / 1e9:.2f}" if result.payload_bytes > _SMALL else ""
        rows.append(
            (
                ("* " if result.kind == Kind.OURS else "  ") + result.who,
                f"{result.seconds * 1e3:.1f}",
                rate,
                f"{result.extra_bytes / 1e6:.1f}",
                _ratio(peer, result, "{:.2f}"),
                _ratio(limit, result, "{:.0%}"),
                f"{reached} of {len(verdicts)}" if verdicts else "",
            )
        )
    rows += [(f"  {who}: left out, {why}",) for who, why in results.skipped.items()]
    return rows


def measurements(measured: list[tuple[Task, Results]]) -> str:
    blocks = [(task, _rows(task, results)) for task, results in measured]
    whole = [HEAD, *(row for _, rows in blocks for row in rows if len(row) == len(HEAD))]
    widths = [max(len(row[column]) for row in whole) for column in range(len(HEAD))]

    def line(row: tuple[str, ...]) -> str:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=False)),
        ]
        return "  ".join(cells).rstrip()

    lines = [line(HEAD)]
    for task, rows in blocks:
        lines += ["", f"{task.name}: {task.title}", *(line(row) for row in rows)]
    return "\n".join(lines)


def verdicts(measured: list[tuple[Task, Results]]) -> str:
    words = {True: "reached", False: "NOT REACHED", None: "not measured"}
    lines = []
    for task, results in measured:
        for who, goals in task.goals.items():
            for goal in goals:
                if who in results:
                    verdict = goal.check(who, results)
                    lines.append(
                        f"{words[verdict.reached]:12}  {task.name:16}  {who}: {verdict.goal}; {verdict.measured}"
                    )
                else:
                    lines.append(f"{words[None]:12}  {task.name:16}  {who}: {results.skipped.get(who, 'did not run')}")
    return "\n".join(lines)
