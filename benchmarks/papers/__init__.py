"""The tables and figures of the papers; ../PAPERS.md lists them."""
