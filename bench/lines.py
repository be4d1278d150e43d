"""Results as JSON lines, which a later run goes on with, and tables: compare.py, lm.py and others."""
import json
import os


def known_lines(path):
    """{case: line} of a file; what is no whole line, as after a kill, is left out."""
    lines = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for text in file:
                try:
                    line = json.loads(text)
                    lines[line["case"]] = line
                except (ValueError, KeyError):
                    pass
    return lines


def tell(text, path):
    """Prints a table, and writes it to a file where there is a path."""
    if path:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    print(text)
