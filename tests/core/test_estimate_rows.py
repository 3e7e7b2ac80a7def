"""A table of estimates gives back, row by row, what was counted."""

from __future__ import annotations

from cheapspec.core.estimate import Count, EstimateTable


def test_rows_are_by_workload_and_make_the_same_table_again() -> None:
    """The sums over all workloads are no rows: they would count everything twice."""
    table = EstimateTable()
    table.add_estimates("m@u", "w", {("d", "0.9"): Count(8, 7, 7.5)})
    table.add_estimates("m@u", "v", {("d", "0.9"): Count(2, 1, 1.5), ("lookup", "static"): Count(1, 1, 0.9)})
    rows = table.rows()
    assert sorted((workload, drafter, bucket) for _, workload, drafter, bucket, _ in rows) == [
        ("v", "d", "0.9"),
        ("v", "lookup", "static"),
        ("w", "d", "0.9"),
    ]
    again = EstimateTable(rows)
    for workload in ("w", "v", None):
        assert again.estimates("m@u", workload) == table.estimates("m@u", workload)
