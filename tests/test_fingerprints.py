"""The proof that results stay: what has changed or gone is reported, what is new is allowed."""

import pytest
from benchmarks.fingerprints import differs

STORED = {"digests": {"mesa a": "1", "plain a": "2"}, "sums": {"rows": "3"}}


@pytest.mark.parametrize(
    "change, verdict, said",
    [
        ({}, False, "digests: 2 of 2 as stored"),
        ({"digests": {"mesa a": "1", "plain a": "2", "vdn a": "9"}}, False, "  vdn a: new"),
        ({"digests": {"mesa a": "1", "plain a": "7"}}, True, "  plain a: 2 stored, 7 now"),
        ({"digests": {"mesa a": "1"}}, True, "  plain a: 2 stored, absent now"),
        ({"sums": {"rows": "4"}}, True, "sums: 0 of 1 as stored"),
    ],
)
def test_changed_and_missing_names_count_and_new_ones_do_not(change, verdict, said, capsys):
    assert differs(STORED, STORED | change) == verdict
    assert said in capsys.readouterr().out.splitlines()
