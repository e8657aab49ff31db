"""The report: tables, statistics, figures and one page, drawn from run records and benchmarks alone."""
