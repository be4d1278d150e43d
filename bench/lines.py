"""Results as JSON lines, which a later run goes on with: compare.py and lm.py."""
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
