from lpunits.paper.statistics import compare


def test_means_are_compared_by_two_standard_errors():
    assert compare([0.1, 0.11, 0.12], [0.2, 0.21, 0.22]) == "lower"
    assert compare([0.2, 0.21, 0.22], [0.1, 0.11, 0.12]) == "higher"
    assert compare([0.1, 0.2, 0.3], [0.15, 0.2, 0.3]) == "not significantly different"
    assert compare([0.1], [0.2]) == "lower"
    assert compare([0.1], [0.1]) == "not significantly different"
    assert compare([0.1, 0.11, 0.12], [0.12]) == "not significantly different"
    assert compare([0.14], [0.1, 0.11, 0.12]) == "higher"
