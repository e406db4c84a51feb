"""Reports of the contract kit: on a terminal while and after it runs, as JSON, and as one HTML page with drawings.

ui/numbers.py      what the others share
progress.py   while it runs
terminal.py   after it ran
files.py      JSON, written and read
html.py       HTML: one file, nothing loaded from elsewhere
ui/change_graph.py   a violation as SVG, for the page and for the inspector
"""

from everturn.testing.report.files import BadReport, read_json, write_json
from everturn.testing.report.html import write_html
from everturn.testing.report.progress import Progress
from everturn.testing.report.terminal import terminal

__all__ = ["BadReport", "Progress", "read_json", "terminal", "write_html", "write_json"]
