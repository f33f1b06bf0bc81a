import numpy as np
import pytest

from weft.ops import linear, reshaped, revalued


def test_rewards_are_scaled_then_held():
    reward = np.array([-30.0, 1.0, 30.0], np.float32)
    assert reshaped(reward).tolist() == reward.tolist()
    assert reshaped(reward, 0.5).tolist() == [-15.0, 0.5, 15.0]
    assert reshaped(reward, 0.5, 10.0).tolist() == [-10.0, 0.5, 10.0]


def test_only_the_last_row_is_valued_anew_and_not_where_it_was_cut():
    bootstrap = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    truncated = np.array([[True, False], [False, True]])
    assert revalued(bootstrap, truncated, np.array([7.0, 8.0])).tolist() == [[1.0, 2.0], [7.0, 4.0]]


def test_a_linear_schedule_reaches_its_end_and_stays():
    assert [float(linear(0.4, 0.2, 4)(n)) for n in (0, 2, 4, 9)] == pytest.approx([0.4, 0.3, 0.2, 0.2])
    assert [float(linear(0.4, None, 4)(n)) for n in (0, 4)] == pytest.approx([0.4, 0.4])
    assert float(linear(0.4, 0.2, 0)(1)) == pytest.approx(0.2)
