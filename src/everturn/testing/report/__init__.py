"""Reports of the contract kit: on a terminal while it runs and afterwards, as JSON, and as one HTML page.

progress.py  the terminal, while clauses run
terminal.py  the terminal, afterwards
files.py     JSON, written and read
html.py      HTML: one file, nothing loaded from elsewhere
svg.py       a violation as a drawing, for the page and for the inspector
wording.py   sentences that terminal and page share
"""

from everturn.testing.report.files import BadReport, read_json, write_json
from everturn.testing.report.html import write_html
from everturn.testing.report.progress import Progress
from everturn.testing.report.terminal import terminal

__all__ = ["BadReport", "Progress", "read_json", "terminal", "write_html", "write_json"]
