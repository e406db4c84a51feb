"""Writes docs/contract.md: `python -m everturn.testing.contract > docs/contract.md`."""

import sys

from everturn.testing.contract.docs_page import page

sys.stdout.write(page())
