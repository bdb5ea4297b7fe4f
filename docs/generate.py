"""
Writes the tables that say what the code says: the error codes in errors.md.

    python docs/generate.py

A test holds the page to the code, so a code that is not documented fails.
"""  # noqa: INP001 - a script beside the pages

from pathlib import Path

from semel.errors import SemelError, tree

PAGE = Path(__file__).parent / "errors.md"
BEGIN = "<!-- generated: python docs/generate.py -->"
END = "<!-- end -->"


def table() -> str:
    """Every code as a row of a Markdown table, and what to do below it."""
    rows = [
        "| code | means | HTTP | exit | SQLSTATE | send it again |",
        "|---|---|---|---|---|---|",
        *(_row(error) for error in tree()),
    ]
    return "\n".join([*rows, "", *(_section(error) for error in tree())])


def page(before: str) -> str:
    """*before* with what is between the marks made anew."""
    head, _, rest = before.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{table()}\n{END}{tail}"


def _row(error: type[SemelError]) -> str:
    again = "yes" if error.retryable else "no"
    return (
        f"| `{error.code}` | {error.title} | {error.http_status} | {error.exit_code}"
        f" | `{error.sqlstate}` | {again} |"
    )


def _section(error: type[SemelError]) -> str:
    meaning = " ".join((error.__doc__ or "").split())
    title = error.title[:1].upper() + error.title[1:]
    return f"## {error.code}\n\n{title}. {meaning}\n\n{error.remedy}\n"


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
