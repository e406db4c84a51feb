"""Writes the methods of AsyncMemoryStore from those of MemoryStore: the same text, with `async` and `await`.

    python tools/make_async_store.py            writes them
    python tools/make_async_store.py --check    says whether they are up to date, and changes nothing

A method of MemoryStore is a signature, a docstring and `return run_observed(self._operations.NAME(...))`; but `lease`
returns an object that the caller awaits or enters. Calls of the store in an example are awaited. A signature that would
fit into one line without `async` and not with it has a comma at its end, which keeps it on several. The rest of aio.py
is written by hand.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "everturn"
BLOCKING, AWAITED = SOURCE / "store" / "sync.py", SOURCE / "store" / "aio.py"
BEGIN = "    # --- made by tools/make_async_store.py from MemoryStore: change them there, then run it ---\n"
END = "    # --- made up to here ---\n"
EXAMPLE = re.compile(r"```python\n.*?```", re.DOTALL)
CALL = re.compile(r"\bstore\.\w+\(")
REFUSAL = "        self._refuse_other_loops()\n"


def public_methods(source: str) -> list[str]:
    """Return the text of each public method of MemoryStore, with the comment lines that stand before it."""
    lines = source.splitlines(keepends=True)
    store = next(
        node for node in ast.parse(source).body if isinstance(node, ast.ClassDef) and node.name == "MemoryStore"
    )
    found, previous_end = [], 0
    for node in store.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            before = [line for line in lines[previous_end : node.lineno - 1] if line.strip()]
            found.append("".join(f"{line}\n" for line in before) + "".join(lines[node.lineno - 1 : node.end_lineno]))
        previous_end = node.end_lineno or 0
    return found


def awaited(method: str) -> str:
    """Return a method of MemoryStore as one of AsyncMemoryStore. Raises ValueError if it has another form."""
    if "    def lease(" in method:
        return awaited_lease(method)
    call = ast.parse(f"class _:\n{method}").body[0].body[0].body[-1]  # type: ignore[attr-defined]  # see public_methods
    match call:
        case ast.Return(value=ast.Call(func=ast.Name(id="run_observed"), args=[ast.Call() as of_engine])):
            pass
        case _:
            raise ValueError(f"is not `return run_observed(...)`: {ast.unparse(call)}")
    head = method[: method.rindex("        return run_observed(")]
    head = re.sub(r"^    def ", "    async def ", head, count=1, flags=re.MULTILINE)
    head = EXAMPLE.sub(lambda found: CALL.sub(r"await \g<0>", found[0]), head)
    return f"{head}{REFUSAL}{returned(of_engine)}"


def awaited_lease(method: str) -> str:
    """Return `lease` of MemoryStore as that of AsyncMemoryStore: its object is awaited, or entered by `async with`."""
    head = method[: method.rindex("        return Lease(")].replace(" -> Lease:", " -> AsyncLease:")
    example = lambda found: found[0].replace("with store.", "async with store.").replace("  store.", "  await store.")  # noqa: E731
    made_by = "AsyncLease(self._operations, session_id, seconds, wait=wait, renew=renew)"
    return f"{EXAMPLE.sub(example, head)}{REFUSAL}        return {made_by}\n"


def returned(call: ast.Call, width: int = 120) -> str:
    """Return the last lines of a method, laid out as `ruff format` does."""
    name, arguments = ast.unparse(call.func), [ast.unparse(each) for each in (*call.args, *call.keywords)]
    whole = f"{name}({', '.join(arguments)})"
    line = f"        return await observed({whole})\n"
    if len(line) <= width + 1:
        return line
    inner = f"            {whole}\n"
    if len(inner) > width + 1:
        inside = f"                {', '.join(arguments)}\n"
        if len(inside) > width + 1:
            inside = "".join(f"                {each},\n" for each in arguments)
        inner = f"            {name}(\n{inside}            )\n"
    return f"        return await observed(\n{inner}        )\n"


def made(blocking: str, present: str) -> str:
    """Return aio.py as it should be, from the text of sync.py and its own present text."""
    head, rest = present.split(BEGIN)
    _, tail = rest.split(END)
    methods = "\n".join(awaited(method) for method in public_methods(blocking))
    return f"{head}{BEGIN}\n{methods}\n{END}{tail}"


def main(arguments: list[str]) -> int:
    present = AWAITED.read_text("utf-8")
    wanted = made(BLOCKING.read_text("utf-8"), present)
    if wanted == present:
        return 0
    if "--check" in arguments:
        print(f"{AWAITED.name} is not made from {BLOCKING.name} as it is; run python tools/make_async_store.py")
        return 1
    AWAITED.write_text(wanted, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
