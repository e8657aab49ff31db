"""Change one line at a time and see whether the tests notice: how much do they protect?

    python benchmarks/mutants.py --out mutants.json                     # 60 of Python, 20 of C; hours
    python benchmarks/mutants.py --out mutants.json --python 8 --c 2    # a quick look

Mutants are drawn by a seed: a comparison, an operator, a constant, a condition or a returned value in one
line of Python, an operator or a constant in one line of C. Each runs in a copy of the checkout, against the
quick tests of its package and the laws, with `-x` and a time limit. A mutant that no test notices is listed
with its line; some of them change nothing that a user could see. An interrupted run resumes from its record.
"""

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
SOURCE = Path("src/aaren")
PACKAGES = ("ops", "nn", "stream", "engine", "forecasting", "classification", "events", "rl")
LAWS = tuple(path for path in ("tests/laws", "tests/test_laws.py") if (REPOSITORY / path).exists())
IGNORED = shutil.ignore_patterns(".git", ".venv", "runs", "__pycache__", ".*_cache", "_build", "dist")
SECONDS = 1800  # per mutant; a test alone has the limit of pyproject.toml, so that an endless loop is noticed

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
OPERATORS = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
C_CHANGES = (
    (r"(?<=\s)<(?=\s)", "<="), (r"(?<=\s)>(?=\s)", ">="), (r"(?<=\s)==(?=\s)", "!="),
    (r"(?<=\s)!=(?=\s)", "=="), (r"(?<=\s)&&(?=\s)", "||"), (r"(?<=\s)\+(?=\s)", "-"),
    (r"(?<=\s)-(?=\s)", "+"), (r"(?<=\w\s)\*(?=\s\w)", "+"),
    (r"(?<![\w.])0(?![\w.])", "1"), (r"(?<![\w.])1(?![\w.])", "2"),
)  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """One line of one file, before and after."""

    path: str
    line: int
    before: str
    after: str

    @property
    def tests(self) -> tuple[str, ...]:
        """The tests to run: those of the file's package, of its own name first, and the laws."""
        parts = Path(self.path).relative_to(SOURCE).parts
        folder = Path("tests", parts[0])
        nearest = folder / f"test_{Path(self.path).stem}.py"
        return (*([str(nearest)] if (REPOSITORY / nearest).exists() else []), str(folder), *LAWS)


def python_mutants(path: Path) -> Iterator[Mutant]:
    """Yield every change of one line of a Python file, leaving out what only words an error."""
    text = (REPOSITORY / path).read_text(encoding="utf-8")
    lines, tree = text.splitlines(), ast.parse(text)
    left_out = {
        line
        for node in ast.walk(tree)
        if isinstance(node, (ast.Raise, ast.Assert, ast.Import, ast.ImportFrom))
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    for function in ast.walk(tree):
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for node in (part for statement in function.body for part in ast.walk(statement)):
            if not isinstance(node, (ast.expr, ast.Return)) or node.lineno != node.end_lineno:
                continue
            change = changed(node)
            if change and node.lineno not in left_out:
                line = lines[node.lineno - 1].encode()
                after = line[: node.col_offset] + change.encode() + line[node.end_col_offset :]
                yield Mutant(str(path), node.lineno, line.decode(), after.decode())


def changed(node: ast.AST) -> str:
    """Return the source of a slightly different expression or statement; empty if there is none."""
    match node:
        case ast.Compare(ops=[operator], left=left, comparators=[right]) if type(operator) in COMPARISONS:
            return f"({ast.unparse(ast.Compare(left, [COMPARISONS[type(operator)]()], [right]))})"
        case ast.BinOp(op=operator, left=left, right=right) if type(operator) in OPERATORS:
            return f"({ast.unparse(ast.BinOp(left, OPERATORS[type(operator)](), right))})"
        case ast.BoolOp(op=ast.And(), values=values):
            return f"({ast.unparse(ast.BoolOp(ast.Or(), values))})"
        case ast.BoolOp(op=ast.Or(), values=values):
            return f"({ast.unparse(ast.BoolOp(ast.And(), values))})"
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return f"({ast.unparse(operand)})"
        case ast.IfExp(test=test, body=body, orelse=orelse):
            return f"({ast.unparse(ast.IfExp(ast.UnaryOp(ast.Not(), test), body, orelse))})"
        case ast.Constant(value=bool(value)):
            return str(not value)
        case ast.Constant(value=int(value)):
            return str(value + 1)
        case ast.Constant(value=float(value)):
            return repr(value * 2 + 1)
        case ast.Return(value=ast.expr()):
            return "return None"
    return ""


def c_mutants(path: Path) -> Iterator[Mutant]:
    """Yield every change of one line of a C file."""
    for number, line in enumerate((REPOSITORY / path).read_text(encoding="utf-8").splitlines(), 1):
        code = re.sub(r"//.*|/\*.*?\*/", "", line)
        if code.lstrip().startswith(("#", "*", "/*")) or "FETCH(" in code:  # comments and hints to the cache
            continue
        for pattern, replacement in C_CHANGES:
            for place in re.finditer(pattern, code):
                yield Mutant(
                    str(path), number, line, code[: place.start()] + replacement + code[place.end() :]
                )


def draw(seed: int, python: int, c: int) -> list[Mutant]:
    """Draw mutants: as many of each package, and of each of the two C files."""
    generator = random.Random(seed)
    groups = [
        ([change for path in sorted((REPOSITORY / SOURCE / package).rglob("*.py"))
          for change in python_mutants(path.relative_to(REPOSITORY))], count)
        for package, count in zip(PACKAGES, shares(python, len(PACKAGES)), strict=True)
    ]  # fmt: skip
    files = sorted((REPOSITORY / SOURCE).rglob("scan.c")) + sorted((REPOSITORY / SOURCE).rglob("runtime.c"))
    for path, count in zip(files, shares(c, len(files)), strict=True):
        groups.append((list(c_mutants(path.relative_to(REPOSITORY))), count))
    return [mutant for changes, count in groups for mutant in generator.sample(changes, count)]


def copied(folder: Path) -> Path:
    """Copy the checkout, so that it is never changed itself, and put the real data beside the copy."""
    (folder / "shared").symlink_to(
        REPOSITORY.parent / "shared"
    )  # where the tests look for it; may be missing
    return Path(shutil.copytree(REPOSITORY, folder / "copy", ignore=IGNORED))


def shares(total: int, parts: int) -> list[int]:
    """Divide a number into parts that differ by at most one."""
    return [total // parts + (part < total % parts) for part in range(parts)]


def run(mutant: Mutant, copy: Path) -> dict[str, object]:
    """Apply a mutant in a copy of the checkout, run its tests and undo it."""
    path, started = copy / mutant.path, time.monotonic()
    original = path.read_text(encoding="utf-8")
    lines = original.splitlines(keepends=True)
    lines[mutant.line - 1] = mutant.after + "\n"
    path.write_text("".join(lines), encoding="utf-8")
    kernel = copy / SOURCE / "ops/cpu/_kernels.so"
    saved = kernel.read_bytes() if kernel.exists() else b""
    try:
        outcome = noticed(mutant, copy)
    finally:
        path.write_text(original, encoding="utf-8")
        if path.suffix == ".c" and saved:
            kernel.unlink(missing_ok=True)
            kernel.write_bytes(saved)
    return {**asdict(mutant), "noticed_by": outcome, "seconds": round(time.monotonic() - started, 1)}


def noticed(mutant: Mutant, copy: Path) -> str:
    """Return what noticed a mutant: a test's name, the compiler, the time limit; empty if nothing did."""
    build = [sys.executable, "hatch_build.py"]
    if mutant.path.endswith(".c") and subprocess.run(build, cwd=copy, capture_output=True).returncode:
        return "compiler"
    return failing_test(mutant.tests, copy)


def failing_test(tests: Sequence[str], copy: Path) -> str:
    """Run tests in a copy of the checkout; return the first that fails, or an empty string."""
    environment = {**os.environ, "PYTHONPATH": str(copy / "src")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not slow and not long", *tests]
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return "time limit"
    if done.returncode == 0:
        return ""
    failure = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    return failure[1] if failure else f"exit code {done.returncode}"


def main() -> None:
    """Draw mutants, run those that the record does not have, and print the shares that were noticed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="the record, a JSON file")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--python", type=int, default=60, help="mutants of Python")
    parser.add_argument("--c", type=int, default=20, help="mutants of C")
    chosen = parser.parse_args()
    rows = json.loads(chosen.out.read_text()) if chosen.out.exists() else []
    done = {(row["path"], row["line"], row["after"]) for row in rows}
    mutants = [
        mutant
        for mutant in draw(chosen.seed, chosen.python, chosen.c)
        if (mutant.path, mutant.line, mutant.after) not in done
    ]
    with tempfile.TemporaryDirectory() as folder:
        copy = copied(Path(folder))
        for tests in sorted({mutant.tests[-1 - len(LAWS) :] for mutant in mutants}):
            if failure := failing_test(tests, copy):
                sys.exit(f"{failure} fails without a change: mend it first.")
        for mutant in mutants:
            row = run(mutant, copy)
            rows.append(row)
            chosen.out.write_text(json.dumps(rows, indent=1) + "\n")
            print(
                f"{mutant.path}:{mutant.line}  {row['noticed_by'] or 'NOT NOTICED: ' + mutant.after.strip()}"
            )
    for name, suffix in (("Python", ".py"), ("C", ".c")):
        group = [row for row in rows if row["path"].endswith(suffix)]
        print(f"{name}: {sum(bool(row['noticed_by']) for row in group)} of {len(group)} noticed")


if __name__ == "__main__":
    main()
