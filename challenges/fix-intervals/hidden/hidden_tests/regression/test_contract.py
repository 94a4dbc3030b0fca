from intervals import merge


def test_input_is_not_changed():
    given = [(5, 6), (1, 4), (2, 3)]
    merge(given)
    assert given == [(5, 6), (1, 4), (2, 3)]


def test_result_is_sorted_and_apart():
    result = merge([(n * 7 % 40, n * 7 % 40 + 2) for n in range(40)])
    assert result == sorted(result)
    assert all(left[1] < right[0] for left, right in zip(result, result[1:]))
