import pytest

from aaren.errors import ConfigError
from aaren.tasks import TASKS, find_task
from support import toy_task


def test_a_module_of_the_users_own_is_a_setting() -> None:
    assert find_task("support.toy_task") is toy_task.TASK


def test_unknown_setting_gets_the_nearest() -> None:
    with pytest.raises(ConfigError, match=r"unknown setting 'forecastin'; did you mean 'forecasting'\?"):
        find_task("forecastin")


def test_missing_module_is_named() -> None:
    with pytest.raises(ConfigError, match="there is no module 'nowhere' to import"):
        find_task("nowhere.at_all")


def test_module_without_a_task_is_named() -> None:
    with pytest.raises(ConfigError, match=r"the module support\.markdown has no TASK"):
        find_task("support.markdown")


@pytest.mark.parametrize("name", sorted(TASKS))
def test_every_setting_says_what_it_is(name: str) -> None:
    task = find_task(name)
    assert task.name == name
    assert all(report.count(".") == 1 for report in task.reports)
